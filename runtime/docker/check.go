package docker

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/runtime/egress"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// hostName matches what may be written to /etc/hosts; names come from hostile files.
var hostName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$`)

// check refuses what is not supported, before anything is created.
func (d *Driver) check(s *sandbox.Spec) error {
	if err := d.checkMachine(s); err != nil {
		return err
	}
	seen := map[string]string{Hostname: "the machine itself", "localhost": "loopback"}
	for _, n := range s.Aliases {
		if !hostName.MatchString(n) {
			return fmt.Errorf("%q is no name of a machine", n)
		}
		if n != "localhost" {
			seen[n] = "the machine itself"
		}
	}
	names := slices.Sorted(maps.Keys(s.Services))
	for _, name := range names {
		side := s.Services[name]
		switch {
		case len(side.Services) > 0:
			return d.no("services of a service (%s)", name)
		case !side.Network.None() || side.Rewire:
			return d.no("a network policy for the service %s alone: it shares its machine's", name)
		}
		if err := d.checkMachine(&side); err != nil {
			return fmt.Errorf("service %s: %w", name, err)
		}
		for _, n := range append([]string{name}, side.Aliases...) {
			if !hostName.MatchString(n) {
				return fmt.Errorf("service %s: %q is no name of a machine", name, n)
			}
			if who, ok := seen[n]; ok && who != "service "+name {
				return fmt.Errorf("service %s: the name %s is taken by %s", name, n, who)
			}
			seen[n] = "service " + name
		}
		for _, after := range side.After {
			if _, ok := s.Services[after]; !ok {
				return fmt.Errorf("service %s starts after %s, which is not there", name, after)
			}
		}
	}
	return acyclic(s.Services)
}

func (d *Driver) checkMachine(s *sandbox.Spec) error {
	if s.Image.IsZero() && d.o.Image == "" {
		return d.no("a machine without an image: name one, or use the driver local")
	}
	for _, p := range []string{s.Platform, s.Image.Platform} {
		if err := d.checkPlatform(p); err != nil {
			return err
		}
	}
	if _, err := egress.Parse(s.Network); err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, v := range s.Volumes {
		switch {
		case v.Name == "" || strings.ContainsAny(v.Name, "/\x00"):
			return fmt.Errorf("volume %q: it needs a name, not a path", v.Name)
		case !path.IsAbs(v.Path) || path.Clean(v.Path) == "/":
			return fmt.Errorf("volume %s: %q is no place for it", v.Name, v.Path)
		case seen[path.Clean(v.Path)]:
			return fmt.Errorf("two volumes at %s", v.Path)
		}
		seen[path.Clean(v.Path)] = true
	}
	for dir := range s.Tmpfs {
		if !path.IsAbs(dir) || path.Clean(dir) == "/" || strings.ContainsRune(dir, 0) {
			return fmt.Errorf("a file system in memory at %q: there is no place for it", dir)
		}
	}
	if s.Memory != 0 && s.Memory < 6<<20 {
		return fmt.Errorf("a memory limit of %d bytes: docker wants at least 6 MiB", s.Memory)
	}
	return nil
}

// checkPlatform refuses platforms that no Linux engine has. The engine may emulate other
// architectures.
func (d *Driver) checkPlatform(p string) error {
	if p == "" {
		return nil
	}
	system, arch, ok := strings.Cut(p, "/")
	if !ok || arch == "" {
		return fmt.Errorf("platform %q: write it as linux/amd64", p)
	}
	arch, _, _ = strings.Cut(arch, "/") // a variant
	if system != "linux" || arch != "amd64" && arch != "arm64" {
		return d.no("platform %s: linux/amd64 and linux/arm64 only", p)
	}
	return nil
}

var errCycle = errors.New("services wait for each other in a cycle")

// acyclic checks that there is an order in which services can be started.
func acyclic(services map[string]sandbox.Spec) error {
	const (
		open = iota + 1
		done
	)
	state := map[string]int{}
	var visit func(name string) error
	visit = func(name string) error {
		switch state[name] {
		case done:
			return nil
		case open:
			return fmt.Errorf("%w: %s", errCycle, name)
		}
		state[name] = open
		for _, after := range services[name].After {
			if err := visit(after); err != nil {
				return err
			}
		}
		state[name] = done
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(services)) {
		if err := visit(name); err != nil {
			return err
		}
	}
	return nil
}
