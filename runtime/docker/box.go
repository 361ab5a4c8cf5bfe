package docker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/moby/moby/client"

	"github.com/evalrun/evalrun/runtime/image"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// A box is one sandbox: its main container, and what belongs to it.
type box struct {
	*machine // main
	d        *Driver
	id       string
	spec     sandbox.Spec
	config   *image.Config // in place of the image's; nil: that
	main     *machine
	services map[string]*machine
	volumes  map[string]string     // the engine's names of volumes, by ours
	bridge   string                // name of the session's network, or ""
	address  map[string]netip.Addr // of containers on the bridge; "" is main
	gate     gate
	here     bool // its network interface is opened by this process

	handed atomic.Bool // Create has returned

	mu      sync.Mutex
	created resources // what the engine was asked to create

	once   sync.Once
	closed chan struct{}
	err    error
}

func (d *Driver) newBox(spec sandbox.Spec) *box {
	b := d.boxOf(prefix+random(8), spec)
	known.Store(b.id, true)
	d.mu.Lock()
	d.live[b.id] = b
	d.mu.Unlock()
	return b
}

// boxOf returns a box without containers.
func (d *Driver) boxOf(id string, spec sandbox.Spec) *box {
	b := &box{d: d, id: id, spec: spec, services: map[string]*machine{}, volumes: map[string]string{},
		address: map[string]netip.Addr{}, closed: make(chan struct{})}
	b.main = newMachine(b, id)
	b.machine = b.main
	for i, name := range slices.Sorted(maps.Keys(spec.Services)) {
		b.services[name] = newMachine(b, fmt.Sprintf("%s-%d", id, i+1))
	}
	for _, s := range b.specs() {
		for _, v := range s.Volumes {
			b.volumes[v.Name] = id + "-" + random(4)
		}
	}
	return b
}

func newMachine(b *box, name string) *machine {
	m := &machine{b: b, name: name}
	m.written.Store(-1)
	return m
}

// specs returns the specs of main and the services.
func (b *box) specs() []sandbox.Spec {
	return append([]sandbox.Spec{b.spec}, slices.Collect(maps.Values(b.spec.Services))...)
}

// Service returns a sidecar.
func (b *box) Service(name string) (sandbox.Sandbox, bool) {
	m, ok := b.services[name]
	if !ok {
		return nil, false
	}
	return service{m}, true
}

// A service is a sidecar as callers see it. The box closes it.
type service struct{ *machine }

func (service) Close() error { return nil }

// begin records what may exist from now on.
func (b *box) begin(note func(l *resources)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	note(&b.created)
}

// process1Output returns what process 1 has printed. If it is not empty, our own program has
// failed.
func (b *box) process1Output() string {
	if b.main.ch == nil {
		return ""
	}
	s := b.main.ch.errs.String()
	return strings.TrimSpace(s[max(0, len(s)-tailSize):])
}

func (b *box) isClosed() bool {
	select {
	case <-b.closed:
		return true
	default:
		return false
	}
}

// makeVolumes creates the session's volumes, with the owner's labels.
func (b *box) makeVolumes(ctx context.Context, cli *client.Client) error {
	for _, name := range slices.Sorted(maps.Keys(b.volumes)) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		call, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), callLimit, errNoAnswer)
		b.begin(func(l *resources) { l.volumes = append(l.volumes, b.volumes[name]) })
		_, err := cli.VolumeCreate(call,
			client.VolumeCreateOptions{Name: b.volumes[name], Labels: labels(b.id, b.spec.Owner)})
		if err != nil {
			err = b.main.engineError(call, "making the volume "+name, err)
		}
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}

var errNoAnswer = errors.New("the docker engine does not answer")

// closeLimit limits Close.
const closeLimit = time.Minute

// Close kills and removes everything. If the engine is not available, the rest is left for
// [Driver.Reap], and the error says so.
func (b *box) Close() error {
	b.once.Do(func() {
		close(b.closed)
		b.err = b.destroy()
		b.d.mu.Lock()
		delete(b.d.live, b.id)
		b.d.mu.Unlock()
	})
	return b.err
}

func (b *box) destroy() error {
	b.closeGate()
	b.mu.Lock()
	created := b.created
	b.mu.Unlock()
	var err error
	if !created.empty() {
		ctx, cancel := context.WithTimeoutCause(context.Background(), closeLimit, errNoAnswer)
		defer cancel()
		var cli *client.Client
		if cli, err = b.d.engine.api(ctx); err == nil {
			away := awayLimit
			if !b.handed.Load() {
				away = awayLimit / 10 // it was never handed out
			}
			err = b.d.removeAll(ctx, cli, b.id, created, away)
		}
	}
	for _, m := range b.machines() {
		if m.c != nil {
			m.c.Close()
		} else if m.ch != nil {
			m.ch.Close()
		}
	}
	known.Delete(b.id)
	if err != nil {
		return &sandbox.Error{Op: "close", ID: b.id,
			Err: fmt.Errorf("%w; the next start, or evalrun gc, removes what is left", err)}
	}
	b.removeState()
	return nil
}

func (b *box) machines() []*machine {
	return append([]*machine{b.main}, slices.Collect(maps.Values(b.services))...)
}

// resources are the objects of one sandbox in the engine.
type resources struct {
	containers, volumes []string
	network             string
}

func (l resources) empty() bool { return len(l.containers)+len(l.volumes) == 0 && l.network == "" }

// removeAll removes the objects of a sandbox: the containers first, and then what they used. An
// engine may be busy with some of them, may just be completing a request of a dead process, or may
// be unavailable for a moment, so it retries. away is how long it waits for an engine that does not
// respond at all.
func (d *Driver) removeAll(ctx context.Context, cli *client.Client, id string, l resources, away time.Duration) error {
	begun := time.Now()
	for {
		err := d.removeOnce(ctx, cli, l)
		if err == nil || unreachable(err) && time.Since(begun) > away {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-time.After(retryPause):
		}
		if now, err := d.list(ctx, cli, labelSandbox+"="+id); err == nil && now[id] != nil {
			for _, c := range now[id].containers {
				if !slices.Contains(l.containers, c) {
					l.containers = append(l.containers, c)
				}
			}
		}
	}
}

const (
	awayLimit = 10 * time.Second
	// retryPause is the time between two tries.
	retryPause = 200 * time.Millisecond
)

func (d *Driver) removeOnce(ctx context.Context, cli *client.Client, l resources) error {
	errs := make([]error, len(l.containers))
	if len(l.containers) == 1 {
		errs[0] = d.removeContainer(ctx, cli, l.containers[0])
	} else {
		var wg sync.WaitGroup
		for i, name := range l.containers {
			wg.Go(func() { errs[i] = d.removeContainer(ctx, cli, name) })
		}
		wg.Wait()
	}
	for _, v := range l.volumes {
		_, err := cli.VolumeRemove(ctx, v, client.VolumeRemoveOptions{Force: true})
		errs = append(errs, gone(err))
	}
	if l.network != "" {
		_, err := cli.NetworkRemove(ctx, l.network, client.NetworkRemoveOptions{})
		errs = append(errs, gone(err))
	}
	return errors.Join(errs...)
}

// removeContainer kills a container and removes it with its anonymous volumes, in one call that
// waits for the kernel only.
func (d *Driver) removeContainer(ctx context.Context, cli *client.Client, name string) error {
	select {
	case d.ends <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-d.ends }()
	_, err := cli.ContainerRemove(ctx, name, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
	return gone(err)
}

// gone drops the error that an object does not exist.
func gone(err error) error {
	if err == nil || missing(err) {
		return nil
	}
	return plainError{err}
}
