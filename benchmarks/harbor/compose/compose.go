package compose

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/internal/yamldoc"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// Options control how a compose file is read.
type Options struct {
	// Main lists the possible names of the agent's service. The first one that exists is used.
	Main []string
	// First: if none of the names in Main exists, the first service is the main one. Optional: if
	// none of them exists, there is no main service and Project.Main is "".
	First, Optional bool
	// Vars looks up declared variables. It may be nil.
	Vars Vars
	// Folders are volume sources that stand for directories of the harness, such as /logs. Nothing
	// of the host is mounted: the directory is created in the machine, or, if several services use
	// it, becomes a volume that they share. The map's values name these volumes.
	Folders map[string]string
}

// A Project is a parsed compose file.
type Project struct {
	Main     string // name of the main service
	Services map[string]*Service
	Internal bool     // the main service has only internal networks
	Warnings []string // "docker-compose.yaml:7:5: …": settings that were read but have no effect
}

// A Service describes one machine. Spec does not include the image.
type Service struct {
	Name  string
	Spec  sandbox.Spec
	Image string // image name; if Build is set, the name of the built image
	Build *Build
	Binds []Bind   // project files that are copied into the image
	Dirs  []string // harness directories that only this service uses
}

// A Build says how an image is built. Its paths are within the file system that the compose file
// was read from.
type Build struct {
	Context    string
	Dockerfile string // content of the Dockerfile
	Args       map[string]string
	Target     string
	Network    string // "" or "none"
}

// A Bind is a file or directory of the project that appears read-only at a path of the machine.
type Bind struct{ From, To string }

// A Refused is the error for something that a file requests and that is not provided. A task with
// such an error cannot be played, but it is not invalid.
type Refused struct{ Err *yamldoc.Error }

func (e *Refused) Error() string { return e.Err.Error() }

// OnlyRefused reports whether err consists of refusals only, so that the file itself is valid.
func OnlyRefused(err error) bool {
	if err == nil {
		return false
	}
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		return !slices.ContainsFunc(many.Unwrap(), func(e error) bool { return !OnlyRefused(e) })
	}
	return errors.As(err, new(*Refused))
}

// A reader reads one file.
type reader struct {
	fsys     fs.FS
	dir      string // directory of the file
	o        Options
	p        *Project
	errs     []error
	volumes  map[string]bool // declared
	networks map[string]bool // declared; true means internal
	services *node
	extended map[string]bool              // names in the current chain of extends
	folders  map[string]map[string]string // harness directory → service → its path
	nets     map[string][]string          // service → its networks
	// service → the services it waits for → where that is declared
	after map[string]map[string]spot
}

// Read reads the compose file name in fsys. The error lists everything that is invalid or refused,
// with positions.
func Read(fsys fs.FS, name string, o Options) (*Project, error) {
	text, err := readFile(fsys, name)
	if err != nil {
		return nil, err
	}
	if o.Vars == nil {
		o.Vars = func(string) (string, bool, error) { return "", false, nil }
	}
	r := &reader{fsys: fsys, dir: path.Dir(name), o: o, p: &Project{Services: map[string]*Service{}},
		volumes: map[string]bool{}, networks: map[string]bool{},
		extended: map[string]bool{}, folders: map[string]map[string]string{}, nets: map[string][]string{},
		after: map[string]map[string]spot{}}
	root, err := parse(name, text, func(text string) (string, error) { return Expand(text, o.Vars) })
	if err != nil {
		return nil, err
	}
	r.project(root)
	if len(r.errs) > 0 {
		return nil, errors.Join(r.errs...)
	}
	return r.p, nil
}

// maxFile limits the size of files next to a compose file that are read whole.
const maxFile = 1 << 20

func readFile(fsys fs.FS, name string) ([]byte, error) {
	info, err := fs.Stat(fsys, name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no file", name)
	}
	if info.Size() > maxFile {
		return nil, fmt.Errorf("%s is larger than %d MiB", name, maxFile>>20)
	}
	return fs.ReadFile(fsys, name)
}

func (r *reader) bad(at spot, format string, args ...any) {
	if len(r.errs) < maxErrors {
		r.errs = append(r.errs, at.Errorf(format, args...))
	}
}

func (r *reader) refuse(at spot, format string, args ...any) {
	if len(r.errs) < maxErrors {
		r.errs = append(r.errs, &Refused{at.Errorf(format, args...)})
	}
}

func (r *reader) warn(at spot, format string, args ...any) {
	r.p.Warnings = append(r.p.Warnings, at.Errorf(format, args...).Error())
}

// want reports whether n is of one of the kinds, and records an error if it is not. If n is nil or
// null, want returns false without an error.
func (r *reader) want(n *node, kinds ...yamldoc.Kind) bool {
	if n == nil || n.Kind == null {
		return false
	}
	if slices.Contains(kinds, n.Kind) {
		return true
	}
	want := kinds[0].String()
	if kinds[0] == scalar {
		want = "a single value"
	}
	r.bad(n, "want %s", want)
	return false
}

func (r *reader) project(root *node) {
	if !r.want(root, mapping) {
		if root.Kind == null {
			r.bad(root, "the file is empty")
		}
		return
	}
	for _, f := range root.Entries {
		switch f.Key {
		case "version", "name":
		case "services":
			r.services = f.Value
		case "volumes":
			r.declareVolumes(f.Value)
		case "networks":
			r.declareNetworks(f.Value)
		case "secrets", "configs": // refused only if a service uses one
		case "include", "models":
			r.refuse(f, "%s is not supported", f.Key)
		default:
			if !strings.HasPrefix(f.Key, "x-") {
				r.bad(f, "unknown key")
			}
		}
	}
	if r.services == nil || !r.want(r.services, mapping) {
		r.bad(root, "the file has no services")
		return
	}
	if n := len(r.services.Entries); n > maxServices {
		r.refuse(r.services, "%d services are too many; a task may have %d", n, maxServices)
		return
	}
	for _, f := range r.services.Entries {
		if f.Key == "" || strings.ContainsAny(f.Key, " /\\:\x00") {
			r.bad(f, "%q is no name of a service", f.Key)
			continue
		}
		r.service(f)
	}
	r.choose(root)
	if len(r.errs) == 0 {
		r.connect()
	}
}

func (r *reader) declareVolumes(n *node) {
	if !r.want(n, mapping) {
		return
	}
	for _, f := range n.Entries {
		r.volumes[f.Key] = true
		if !r.want(f.Value, mapping) {
			continue
		}
		for _, k := range f.Value.Entries {
			switch {
			case k.Key == "driver" && k.Value.Text == "local", k.Key == "name", k.Key == "labels",
				strings.HasPrefix(k.Key, "x-"):
			case k.Key == "external" && k.Value.Text == "false":
			default:
				r.refuse(k, "%s is not supported; a volume is of this session alone", k.Key)
			}
		}
	}
}

func (r *reader) declareNetworks(n *node) {
	if !r.want(n, mapping) {
		return
	}
	for _, f := range n.Entries {
		r.networks[f.Key] = false
		if !r.want(f.Value, mapping) {
			continue
		}
		for _, k := range f.Value.Entries {
			switch {
			case k.Key == "internal":
				r.networks[f.Key], _ = parseBool(k.Value.Text)
			case k.Key == "driver" && (k.Value.Text == "bridge" || k.Value.Text == "" || k.Value.Text == "default"):
			case k.Key == "name", k.Key == "labels", k.Key == "attachable", strings.HasPrefix(k.Key, "x-"):
			case k.Key == "external" && k.Value.Text == "false":
			case k.Key == "ipam", k.Key == "enable_ipv6", k.Key == "enable_ipv4", k.Key == "driver_opts":
				r.warn(k, "%s is without effect; services find each other by name", k.Key)
			default:
				r.refuse(k, "%s %s is not supported", k.Key, k.Value.Text)
			}
		}
	}
}

// choose determines the main service.
func (r *reader) choose(root *node) {
	for _, name := range r.o.Main {
		if r.p.Services[name] != nil {
			r.p.Main = name
			return
		}
	}
	if r.o.First {
		for _, f := range r.services.Entries {
			if r.p.Services[f.Key] != nil {
				r.p.Main = f.Key
				return
			}
		}
	}
	if len(r.errs) == 0 && !r.o.Optional {
		r.bad(root, "no service is called %s", strings.Join(r.o.Main, " or "))
	}
}

// connect resolves the services' dependencies and shared directories.
func (r *reader) connect() {
	for _, name := range slices.Sorted(maps.Keys(r.p.Services)) {
		s := r.p.Services[name]
		for _, dep := range slices.Sorted(maps.Keys(r.after[name])) {
			place := r.after[name][dep]
			switch {
			case r.p.Services[dep] == nil && slices.Contains(r.o.Main, dep) && r.o.Optional:
			case r.p.Services[dep] == nil:
				r.bad(place, "service %s depends on %s, and there is none", name, dep)
			case name == r.p.Main: // all services are healthy before main starts
			case dep == r.p.Main:
				r.warn(place, "service %s waits for %s, which begins after all others; it does not wait", name, dep)
			default:
				s.Spec.After = append(s.Spec.After, dep)
			}
		}
	}
	r.acyclic()
	for _, folder := range slices.Sorted(maps.Keys(r.folders)) {
		users := r.folders[folder]
		for _, name := range slices.Sorted(maps.Keys(users)) {
			s := r.p.Services[name]
			if s == nil {
				continue
			}
			if len(users) == 1 {
				s.Dirs = append(s.Dirs, users[name])
			} else {
				s.Spec.Volumes = append(s.Spec.Volumes, sandbox.Volume{Name: folder, Path: users[name]})
			}
		}
	}
	nets := r.nets[r.p.Main]
	r.p.Internal = len(nets) > 0 && !slices.ContainsFunc(nets, func(n string) bool { return !r.networks[n] })
}

// acyclic reports services that wait for each other.
func (r *reader) acyclic() {
	state := map[string]int{}
	var visit func(name string) bool
	visit = func(name string) bool {
		if state[name] != 0 {
			return state[name] == 2
		}
		state[name] = 1
		for _, dep := range r.p.Services[name].Spec.After {
			if !visit(dep) {
				return false
			}
		}
		state[name] = 2
		return true
	}
	for _, name := range slices.Sorted(maps.Keys(r.p.Services)) {
		if !visit(name) {
			r.bad(r.services, "service %s waits for itself by depends_on", name)
			return
		}
	}
}
