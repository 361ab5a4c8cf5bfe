// Package docker makes sandboxes of containers: the driver "docker". It is the only package that
// knows Docker's API, which it speaks from version 1.41 (Docker 20.10) on.
//
//	d := docker.New(docker.Options{})
//	if err := d.Probe(ctx); err != nil { … } // says what to do
//	sb, err := d.Create(ctx, spec)
//
// Process 1 of every container is our executor: a static program that is mounted read-only (or
// copied, where the engine cannot see our files), speaks over the container's stdin and stdout, and
// starts whatever runs. No image is changed for it, and none needs a shell. The image's ENTRYPOINT
// is its child. The engine is asked five things for a sandbox's whole life: create, attach, start,
// and at its end kill and remove, in one call; commands and files never pass through its API.
//
// A container has no network of the engine's: what it may reach, it reaches through the executor.
// Sidecars live in main's network namespace, so that all of them meet on its loopback; only where
// two want the same port, a session gets one bridge that leads nowhere.
//
// Everything that is made carries labels that say whose it is; see [Driver.Reap].
package docker
