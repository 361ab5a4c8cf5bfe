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

// Options of reading.
type Options struct {
	// Main are the names that the machine of the agent may have; the first that is there is it.
	Main []string
	// First: without any of these names the first service is it. Optional: without any there is
	// none, and Project.Main is "".
	First, Optional bool
	// Vars are the declared variables; nil: none.
	Vars Vars
	// Folders are sources of volumes that stand for folders of the harness, such as /logs: nothing
	// of the host is mounted, the folder is only made; where several services have one, it is a
	// volume that they share. The values name these volumes.
	Folders map[string]string
}

// A Project is a compose file as it is understood.
type Project struct {
	Main     string // the name of the main service
	Services map[string]*Service
	Internal bool     // main has internal networks only
	Warnings []string // "docker-compose.yaml:7:5: …": what is read, and is without effect here
}

// A Service is one machine. Spec has all but the image.
type Service struct {
	Name  string
	Spec  sandbox.Spec
	Image string // a name; with Build the name of what is built
	Build *Build
	Binds []Bind   // files of the project that are copied into the image
	Dirs  []string // folders of the harness that only this service has
}

// A Build says how an image is built. Its paths are below the file system that the compose file was
// read from.
type Build struct {
	Context    string
	Dockerfile string // its text
	Args       map[string]string
	Target     string
	Network    string // "" or "none"
}

// A Bind is a file or folder of the project at a path of the machine, read-only.
type Bind struct{ From, To string }

// Refused is something that a file asks for and does not get here. A task with it cannot be played,
// and is not wrong for that.
type Refused struct{ Err *yamldoc.Error }

func (e *Refused) Error() string { return e.Err.Error() }

// OnlyRefused reports whether err is of refusals alone, and so says nothing against the file.
func OnlyRefused(err error) bool {
	if err == nil {
		return false
	}
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		return !slices.ContainsFunc(many.Unwrap(), func(e error) bool { return !OnlyRefused(e) })
	}
	return errors.As(err, new(*Refused))
}

// reader reads one file.
type reader struct {
	fsys     fs.FS
	dir      string // of the file
	o        Options
	p        *Project
	errs     []error
	volumes  map[string]bool // declared
	networks map[string]bool // declared; true: internal
	services *node
	extended map[string]bool              // names on the way of an extends
	folders  map[string]map[string]string // folder of the harness → service → its path
	nets     map[string][]string          // service → its networks
	after    map[string]map[string]spot   // service → the services it waits for → where it says so
}

// Read reads the compose file name of fsys. The error lists all that is wrong or refused, with
// places.
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

// maxFile bounds files beside a compose file that are read whole.
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

// want reports whether n is of a kind, and notes it if not. Nothing is no error, and not of the
// kind.
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
		case "secrets", "configs": // refused where a service uses one
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

// choose finds the main service.
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

// connect makes the services' waiting and their shared folders of what each said.
func (r *reader) connect() {
	for _, name := range slices.Sorted(maps.Keys(r.p.Services)) {
		s := r.p.Services[name]
		for _, dep := range slices.Sorted(maps.Keys(r.after[name])) {
			place := r.after[name][dep]
			switch {
			case r.p.Services[dep] == nil && slices.Contains(r.o.Main, dep) && r.o.Optional:
			case r.p.Services[dep] == nil:
				r.bad(place, "service %s depends on %s, and there is none", name, dep)
			case name == r.p.Main: // all services are healthy before main begins
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

// acyclic notes services that wait for each other.
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
