package compose

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

type timeSpan = time.Duration

// placed adds a position to an error. A refusal remains a refusal.
func placed(at spot, err error) error {
	e := at.Errorf("%v", err)
	e.Err = err
	return e
}

// A mount is an entry of volumes.
type mount struct {
	kind, source, target string
	readOnly             bool
	size                 int64
}

func (r *reader) mounts(s *Service, n *node) {
	if !r.want(n, list) {
		return
	}
	for i, item := range n.Items {
		var m mount
		ok := false
		switch item.Kind {
		case scalar:
			m, ok = r.shortMount(item)
		case mapping:
			m, ok = r.longMount(item)
		default:
			r.bad(item, "want SOURCE:TARGET, or a mapping")
		}
		if !ok {
			continue
		}
		if !path.IsAbs(m.target) {
			r.bad(item, "target %q; want an absolute path", m.target)
			continue
		}
		if m.target = path.Clean(m.target); m.target == "/" {
			r.bad(item, "the root cannot be a volume")
			continue
		}
		r.mount(s, item, m, i)
	}
}

// shortMount parses [SOURCE:]TARGET[:MODE].
func (r *reader) shortMount(n *node) (m mount, ok bool) {
	parts := strings.Split(r.text(n), ":")
	switch len(parts) {
	case 1:
		return mount{kind: "volume", target: parts[0]}, true
	case 2, 3:
		m.source, m.target = parts[0], parts[1]
	default:
		r.bad(n, "%q; want SOURCE:TARGET or SOURCE:TARGET:ro", n.Text)
		return m, false
	}
	if len(parts) == 3 {
		for _, o := range strings.Split(parts[2], ",") {
			switch o {
			case "ro":
				m.readOnly = true
			case "rw", "z", "Z", "cached", "delegated", "consistent", "nocopy":
			default:
				r.refuse(n, "the option %s is not supported", o)
				return m, false
			}
		}
	}
	m.kind = "volume"
	if _, known := r.o.Folders[m.source]; known || strings.HasPrefix(m.source, ".") ||
		strings.HasPrefix(m.source, "/") || strings.HasPrefix(m.source, "~") {
		m.kind = "bind"
	}
	return m, true
}

func (r *reader) longMount(n *node) (m mount, ok bool) {
	ok = true
	for _, f := range n.Entries {
		switch f.Key {
		case "type":
			m.kind = r.text(f.Value)
		case "source":
			m.source = r.text(f.Value)
		case "target":
			m.target = r.text(f.Value)
		case "read_only":
			m.readOnly = f.Value.Text == "true"
		case "consistency", "bind", "volume":
			for _, k := range f.Value.Entries {
				if k.Key == "subpath" || k.Key == "propagation" && k.Value.Text != "rprivate" &&
					k.Value.Text != "private" {
					r.refuse(k, "%s is not supported", k.Key)
					ok = false
				}
			}
		case "tmpfs":
			if v := f.Value.Find("size"); v != nil {
				m.size = r.size(v)
			}
		default:
			r.bad(f, "unknown key")
			ok = false
		}
	}
	switch m.kind {
	case "volume", "bind", "tmpfs":
	case "":
		r.bad(n, "a mount without a type")
		ok = false
	default:
		r.refuse(n, "mounts of type %s are not supported", m.kind)
		ok = false
	}
	return m, ok
}

func (r *reader) mount(s *Service, place spot, m mount, i int) {
	if folder, ok := r.o.Folders[m.source]; ok && m.source != "" {
		if r.folders[folder] == nil {
			r.folders[folder] = map[string]string{}
		}
		r.folders[folder][s.Name] = m.target
		return
	}
	switch m.kind {
	case "tmpfs":
		r.addTmpfs(s, m.target, m.size)
	case "volume":
		name := m.source
		if name == "" {
			// an unnamed volume belongs to this service only
			name = fmt.Sprintf("%s-%d", s.Name, i+1)
		} else if !r.volumes[name] {
			r.bad(place, "%q is no volume of the file, and no path that begins with ./", name)
			return
		}
		s.Spec.Volumes = append(s.Spec.Volumes, sandbox.Volume{Name: name, Path: m.target, ReadOnly: m.readOnly})
	default:
		r.bind(s, place, m)
	}
}

// bind accepts a read-only mount of a path of the project, which is copied into the image. Files
// that a machine could write are not part of the task, and no path of the host is ever visible
// inside.
func (r *reader) bind(s *Service, place spot, m mount) {
	p, ok := r.inside(m.source)
	switch {
	case !ok:
		r.refuse(place, "the host's path %s is not mounted", m.source)
		return
	case !m.readOnly:
		r.refuse(place, "the path %s would be writable; only read-only ones of the task's folder are supported (add "+
			":ro, or COPY it in the Dockerfile)", m.source)
		return
	case p == ".":
		r.refuse(place, "the task's whole folder is not mounted")
		return
	}
	if strings.ContainsAny(p+m.target, "\n\r\"") {
		r.refuse(place, "a name with line ends or quotation marks")
		return
	}
	if _, err := fs.Stat(r.fsys, p); err != nil {
		r.bad(place, "%s: %v", m.source, err)
		return
	}
	s.Binds = append(s.Binds, Bind{p, m.target})
}

func (r *reader) tmpfs(s *Service, n *node) {
	for _, t := range r.texts(n) {
		dir, opts, _ := strings.Cut(t, ":")
		size := int64(0)
		for _, o := range strings.Split(opts, ",") {
			if v, ok := strings.CutPrefix(o, "size="); ok {
				b, err := parseSize(v)
				if err != nil {
					r.bad(n, "size %v", err)
				}
				size = b
			}
		}
		if !path.IsAbs(dir) || path.Clean(dir) == "/" {
			r.bad(n, "%q; want an absolute path", dir)
			continue
		}
		r.addTmpfs(s, path.Clean(dir), size)
	}
}

func (r *reader) addTmpfs(s *Service, dir string, size int64) {
	if s.Spec.Tmpfs == nil {
		s.Spec.Tmpfs = map[string]int64{}
	}
	s.Spec.Tmpfs[dir] = size
}

// join reads the networks of a service. All services of a session can reach each other, whichever
// networks they name.
func (r *reader) join(s *Service, n *node) {
	if !r.want(n, mapping, list) {
		return
	}
	add := func(place spot, name string) {
		if _, ok := r.networks[name]; !ok && name != "default" {
			r.bad(place, "%q is no network of the file", name)
		}
		r.nets[s.Name] = append(r.nets[s.Name], name)
	}
	for _, i := range n.Items {
		add(i, r.text(i))
	}
	for _, f := range n.Entries {
		add(f, f.Key)
		for _, k := range f.Value.Entries {
			switch k.Key {
			case "aliases":
				s.Spec.Aliases = append(s.Spec.Aliases, r.texts(k.Value)...)
			case "priority", "gw_priority":
			case "ipv4_address", "ipv6_address", "link_local_ips", "mac_address", "driver_opts":
				r.warn(k, "%s is without effect; services find each other by name", k.Key)
			default:
				r.bad(k, "unknown key")
			}
		}
	}
}

func (r *reader) networkMode(s *Service, n *node) {
	mode := r.text(n)
	to, shared := strings.CutPrefix(mode, "service:")
	switch {
	case mode == "" || mode == "bridge" || mode == "default":
	case mode == "none" && slices.Contains(r.o.Main, s.Name):
		r.networks["\x00none"] = true
		r.nets[s.Name] = append(r.nets[s.Name], "\x00none")
	case shared && !slices.Contains(r.o.Main, to):
		r.after[s.Name][to] = n
	case shared: // every service shares main's
	default:
		r.refuse(n, "network_mode %s is not supported", mode)
	}
}
