package compose

import (
	"bufio"
	"bytes"
	"cmp"
	"io/fs"
	"maps"
	"path"
	"strings"
	"time"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

// environment reads variables; one without a value is taken from the declared ones, and left out
// when it is none of them.
func (r *reader) environment(s *Service, n *node) {
	if !r.want(n, "environment", mapping, list) {
		return
	}
	own := map[string]string{}
	for _, f := range pairs(n).keys {
		switch {
		case f.name == "" || strings.ContainsAny(f.name, "=\x00"):
			r.bad(f.place, "environment: %q is no name of a variable", f.name)
		case f.value.kind == scalar:
			own[f.name] = r.text(f.value, f.name)
		case f.value.kind == null:
			v, ok, err := r.o.Vars(f.name)
			if err != nil {
				r.errs = append(r.errs, placed(f.place, err))
			}
			if ok {
				own[f.name] = v
			}
		default:
			r.bad(f.place, "environment: %s: want a single value", f.name)
		}
	}
	if s.Spec.Env == nil {
		s.Spec.Env = map[string]string{}
	}
	maps.Copy(s.Spec.Env, own) // over what env_file said: that never replaces
}

// inside is a path of the project, below the file system.
func (r *reader) inside(p string) (string, bool) {
	if path.IsAbs(p) || strings.HasPrefix(p, "~") || strings.ContainsAny(p, "\\\x00") {
		return "", false
	}
	p = path.Join(r.dir, p)
	return p, fs.ValidPath(p)
}

func (r *reader) envFiles(s *Service, n *node) {
	items := []*node{n}
	if n.kind == list {
		items = n.items
	}
	fromFiles := map[string]string{}
	for _, i := range items {
		name, required := i.text, true
		if i.kind == mapping {
			for _, k := range i.keys {
				switch k.name {
				case "path":
					name = k.value.text
				case "required":
					required = k.value.text != "false"
				case "format":
				default:
					r.bad(k.place, "env_file: unknown key %q", k.name)
				}
			}
		}
		if name == "" {
			continue
		}
		p, ok := r.inside(name)
		if !ok {
			r.refuse(i.place, "env_file %s lies outside of the task's folder", name)
			continue
		}
		text, err := readFile(r.fsys, p)
		if err != nil {
			if required {
				r.bad(i.place, "env_file %s: %v", name, err)
			}
			continue
		}
		r.envFile(fromFiles, i.place, name, text)
	}
	if s.Spec.Env == nil {
		s.Spec.Env = map[string]string{}
	}
	for k, v := range fromFiles {
		if _, there := s.Spec.Env[k]; !there {
			s.Spec.Env[k] = v
		}
	}
}

// envFile reads lines of NAME=value.
func (r *reader) envFile(to map[string]string, place, name string, text []byte) {
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, maxFile)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(strings.TrimPrefix(lines.Text(), "\ufeff"))
		if line == "" || line[0] == '#' {
			continue
		}
		k, v, ok := strings.Cut(strings.TrimPrefix(line, "export "), "=")
		k, v = strings.TrimSpace(k), strings.TrimSpace(v)
		if k == "" || strings.ContainsAny(k, " \t\x00") {
			r.bad(place, "env_file %s, line %d: want NAME=value", name, n)
			return
		}
		if !ok { // a name alone is taken from the declared variables
			if v, set, err := r.o.Vars(k); err == nil && set {
				to[k] = v
			}
			continue
		}
		quote := byte(0)
		if len(v) >= 2 && (v[0] == '\'' || v[0] == '"') {
			if end := strings.IndexByte(v[1:], v[0]); end >= 0 {
				quote, v = v[0], v[1:end+1]
			}
		} else if i := strings.Index(v, " #"); i >= 0 {
			v = strings.TrimSpace(v[:i])
		}
		if quote != '\'' {
			out, err := Expand(v, r.o.Vars)
			if err != nil {
				r.errs = append(r.errs, placed(place, err))
			}
			v = out
		}
		if quote == '"' {
			v = strings.NewReplacer(`\n`, "\n", `\t`, "\t", `\"`, `"`, `\\`, `\`).Replace(v)
		}
		to[k] = v
	}
}

// build reads how an image is built.
func (r *reader) build(n *node) *Build {
	if !r.want(n, "build", mapping, scalar) {
		return nil
	}
	b := &Build{}
	dockerfile, context, inline := "Dockerfile", ".", ""
	if n.kind == scalar {
		context = n.text
	}
	at := n.place
	for _, f := range n.keys {
		switch v := f.value; f.name {
		case "context":
			if context = r.text(v, f.name); context == "" {
				context = "."
			}
			at = v.place
		case "dockerfile":
			if d := r.text(v, f.name); d != "" {
				dockerfile = d
			}
		case "dockerfile_inline":
			inline = r.text(v, f.name)
		case "target":
			b.Target = r.text(v, f.name)
		case "args":
			b.Args = r.args(v)
		case "network":
			switch m := r.text(v, f.name); m {
			case "none":
				b.Network = m
			case "", "default", "bridge":
			default:
				r.refuse(v.place, "build: network %s is not supported", m)
			}
		case "labels", "tags", "cache_from", "cache_to", "no_cache", "no_cache_filter", "pull", "shm_size", "ulimits", "platforms", "provenance", "sbom":
		case "privileged":
			if v.text != "false" {
				r.refuse(f.place, "build: privileged is not supported")
			}
		default:
			if strings.HasPrefix(f.name, "x-") {
				continue
			}
			r.refuse(f.place, "build: %s is not supported", f.name)
		}
	}
	if strings.Contains(context, "://") || strings.HasPrefix(context, "git@") || strings.HasPrefix(context, "github.com/") {
		r.refuse(at, "build: the context %s is no folder of the task", context)
		return nil
	}
	dir, ok := r.inside(context)
	if !ok {
		r.refuse(at, "build: the context %s lies outside of the task's folder", context)
		return nil
	}
	b.Context = dir
	if b.Dockerfile = inline; inline != "" {
		return b
	}
	file := path.Join(dir, dockerfile)
	if path.IsAbs(dockerfile) || !fs.ValidPath(file) {
		r.refuse(at, "build: the dockerfile %s lies outside of the task's folder", dockerfile)
		return nil
	}
	text, err := readFile(r.fsys, file)
	if err != nil {
		r.bad(at, "build: %v", err)
		return nil
	}
	if b.Dockerfile = strings.ToValidUTF8(string(text), "\ufffd"); strings.TrimSpace(b.Dockerfile) == "" {
		r.bad(at, "build: %s is empty", file)
	}
	return b
}

// args are build arguments; one without a value is taken from the declared variables.
func (r *reader) args(n *node) map[string]string {
	if !r.want(n, "args", mapping, list) {
		return nil
	}
	out := map[string]string{}
	for _, f := range pairs(n).keys {
		if f.value.kind == scalar {
			out[f.name] = f.value.text
			continue
		}
		v, ok, err := r.o.Vars(f.name)
		if err != nil {
			r.errs = append(r.errs, placed(f.place, err))
		}
		if ok {
			out[f.name] = v
		}
	}
	return out
}

func (r *reader) dependsOn(s *Service, n *node) {
	if !r.want(n, "depends_on", mapping, list) {
		return
	}
	for _, i := range n.items {
		if d := r.text(i, "depends_on"); d != "" {
			r.after[s.Name][d] = i.place
		}
	}
	for _, f := range n.keys {
		required := true
		for _, k := range f.value.keys {
			switch v := k.value.text; k.name {
			case "condition":
				switch v {
				case "service_started", "service_healthy":
				case "service_completed_successfully":
					r.refuse(k.place, "service %s: waiting until %s has ended is not supported", s.Name, f.name)
				default:
					r.bad(k.place, "depends_on: condition %q; want service_started or service_healthy", v)
				}
			case "required":
				required = v != "false"
			case "restart":
			default:
				r.bad(k.place, "depends_on: unknown key %q", k.name)
			}
		}
		if required || r.services.get(f.name) != nil {
			r.after[s.Name][f.name] = f.place
		}
	}
}

// links are other names for services, and waiting for them.
func (r *reader) links(s *Service, n *node) {
	for _, l := range r.texts(n, "links") {
		to, alias, _ := strings.Cut(l, ":")
		r.after[s.Name][to] = n.place
		if alias != "" && alias != to {
			r.warn(n.place, "service %s: the link's name %s is without effect; %s is called %[3]s", s.Name, alias, to)
		}
	}
}

func (r *reader) health(n *node) *sandbox.Health {
	if !r.want(n, "healthcheck", mapping) {
		return nil
	}
	h := &sandbox.Health{}
	for _, f := range n.keys {
		v := f.value
		switch f.name {
		case "test":
			switch {
			case v.kind == scalar:
				h.Test = []string{"CMD-SHELL", r.text(v, "test")}
			case r.want(v, "test", list):
				h.Test = r.texts(v, "test")
				if len(h.Test) > 0 && h.Test[0] != "CMD" && h.Test[0] != "CMD-SHELL" && h.Test[0] != "NONE" {
					r.bad(v.place, "healthcheck: a list begins with CMD, CMD-SHELL or NONE, not %q", h.Test[0])
				}
			}
		case "interval", "timeout", "start_period", "start_interval":
			d, err := parseDuration(r.text(v, f.name))
			if err != nil {
				r.bad(v.place, "healthcheck: %s: %v", f.name, err)
			}
			*map[string]*timeSpan{"interval": &h.Interval, "timeout": &h.Timeout, "start_period": &h.StartPeriod, "start_interval": &h.StartInterval}[f.name] = d
		case "retries":
			h.Retries = int(min(r.number(v, f.name), 1e6))
		case "disable":
			if v.text == "true" {
				return &sandbox.Health{Test: []string{"NONE"}}
			}
		default:
			if !strings.HasPrefix(f.name, "x-") {
				r.bad(f.place, "healthcheck: unknown key %q", f.name)
			}
		}
	}
	// An engine checks for the first time when an interval has passed, and only then counts
	// failures. To look earlier costs nothing.
	if first := cmp.Or(h.Interval, 30*time.Second); h.StartPeriod < first {
		h.StartPeriod, h.StartInterval = first, cmp.Or(h.StartInterval, time.Second)
	}
	return h
}

// deploy has resources that count, and much for clusters that does not.
func (r *reader) deploy(s *Service, n *node) {
	if !r.want(n, "deploy", mapping) {
		return
	}
	for _, f := range n.keys {
		switch f.name {
		case "replicas":
			if r.text(f.value, "replicas") != "1" {
				r.refuse(f.place, "service %s: deploy: %s replicas are not supported; want 1", s.Name, f.value.text)
			}
		case "resources":
			for _, part := range f.value.keys {
				for _, k := range part.value.keys {
					r.resource(s, part.name, k)
				}
			}
		case "restart_policy", "labels", "mode", "placement", "update_config", "rollback_config", "endpoint_mode":
		default:
			r.bad(f.place, "deploy: unknown key %q", f.name)
		}
	}
}

func (r *reader) resource(s *Service, part string, k field) {
	switch part + "." + k.name {
	case "limits.cpus":
		s.Spec.CPUs = r.number(k.value, "cpus")
	case "limits.memory":
		s.Spec.Memory = r.size(k.value, "memory")
	case "limits.pids":
		s.Spec.Pids = int(min(r.number(k.value, "pids"), 1<<22))
	case "reservations.cpus":
		s.Spec.Reserve.CPUs = r.number(k.value, "cpus")
	case "reservations.memory":
		s.Spec.Reserve.Memory = r.size(k.value, "memory")
	case "reservations.devices":
		r.refuse(k.place, "service %s: devices (GPUs) are not supported", s.Name)
	default:
		r.bad(k.place, "deploy: unknown key %q", part+"."+k.name)
	}
}
