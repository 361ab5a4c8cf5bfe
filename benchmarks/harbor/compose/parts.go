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

// environment reads environment variables. One without a value takes the value of the declared
// variable of that name, and is omitted if there is none.
func (r *reader) environment(s *Service, n *node) {
	if !r.want(n, mapping, list) {
		return
	}
	own := map[string]string{}
	for _, f := range pairs(n).Entries {
		switch {
		case f.Key == "" || strings.ContainsAny(f.Key, "=\x00"):
			r.bad(f, "%q is no name of a variable", f.Key)
		case f.Value.Kind == scalar:
			own[f.Key] = r.text(f.Value)
		case f.Value.Kind == null:
			v, ok, err := r.o.Vars(f.Key)
			if err != nil {
				r.errs = append(r.errs, placed(f, err))
			}
			if ok {
				own[f.Key] = v
			}
		default:
			r.bad(f, "want a single value")
		}
	}
	if s.Spec.Env == nil {
		s.Spec.Env = map[string]string{}
	}
	maps.Copy(s.Spec.Env, own) // overrides env_file
}

// inside returns the path p of the project relative to the file system, or false if p leads out of
// it.
func (r *reader) inside(p string) (string, bool) {
	if path.IsAbs(p) || strings.HasPrefix(p, "~") || strings.ContainsAny(p, "\\\x00") {
		return "", false
	}
	p = path.Join(r.dir, p)
	return p, fs.ValidPath(p)
}

func (r *reader) envFiles(s *Service, n *node) {
	items := []*node{n}
	if n.Kind == list {
		items = n.Items
	}
	fromFiles := map[string]string{}
	for _, i := range items {
		name, required := i.Text, true
		if i.Kind == mapping {
			for _, k := range i.Entries {
				switch k.Key {
				case "path":
					name = k.Value.Text
				case "required":
					required = k.Value.Text != "false"
				case "format":
				default:
					r.bad(k, "unknown key")
				}
			}
		}
		if name == "" {
			continue
		}
		p, ok := r.inside(name)
		if !ok {
			r.refuse(i, "env_file %s lies outside of the task's folder", name)
			continue
		}
		text, err := readFile(r.fsys, p)
		if err != nil {
			if required {
				r.bad(i, "env_file %s: %v", name, err)
			}
			continue
		}
		r.envFile(fromFiles, i, name, text)
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

// envFile reads lines of the form NAME=value.
func (r *reader) envFile(to map[string]string, place spot, name string, text []byte) {
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
		if !ok { // a name without a value takes the declared variable's value
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

// build reads the settings for building an image.
func (r *reader) build(n *node) *Build {
	if !r.want(n, mapping, scalar) {
		return nil
	}
	b := &Build{}
	dockerfile, context, inline := "Dockerfile", ".", ""
	if n.Kind == scalar {
		context = n.Text
	}
	at := n
	for _, f := range n.Entries {
		switch v := f.Value; f.Key {
		case "context":
			if context = r.text(v); context == "" {
				context = "."
			}
			at = v
		case "dockerfile":
			if d := r.text(v); d != "" {
				dockerfile = d
			}
		case "dockerfile_inline":
			inline = r.text(v)
		case "target":
			b.Target = r.text(v)
		case "args":
			b.Args = r.args(v)
		case "network":
			switch m := r.text(v); m {
			case "none":
				b.Network = m
			case "", "default", "bridge":
			default:
				r.refuse(v, "network %s is not supported", m)
			}
		case "labels", "tags", "cache_from", "cache_to", "no_cache", "no_cache_filter", "pull", "shm_size", "ulimits",
			"platforms", "provenance", "sbom":
		case "privileged":
			if v.Text != "false" {
				r.refuse(f, "privileged is not supported")
			}
		default:
			if strings.HasPrefix(f.Key, "x-") {
				continue
			}
			r.refuse(f, "%s is not supported", f.Key)
		}
	}
	if strings.Contains(context, "://") || strings.HasPrefix(context, "git@") ||
		strings.HasPrefix(context, "github.com/") {
		r.refuse(at, "the context %s is no folder of the task", context)
		return nil
	}
	dir, ok := r.inside(context)
	if !ok {
		r.refuse(at, "the context %s lies outside of the task's folder", context)
		return nil
	}
	b.Context = dir
	if b.Dockerfile = inline; inline != "" {
		return b
	}
	file := path.Join(dir, dockerfile)
	if path.IsAbs(dockerfile) || !fs.ValidPath(file) {
		r.refuse(at, "the dockerfile %s lies outside of the task's folder", dockerfile)
		return nil
	}
	text, err := readFile(r.fsys, file)
	if err != nil {
		r.bad(at, "%v", err)
		return nil
	}
	if b.Dockerfile = strings.ToValidUTF8(string(text), "\ufffd"); strings.TrimSpace(b.Dockerfile) == "" {
		r.bad(at, "%s is empty", file)
	}
	return b
}

// args reads build arguments. One without a value takes the value of the declared variable of that
// name.
func (r *reader) args(n *node) map[string]string {
	if !r.want(n, mapping, list) {
		return nil
	}
	out := map[string]string{}
	for _, f := range pairs(n).Entries {
		if f.Value.Kind == scalar {
			out[f.Key] = f.Value.Text
			continue
		}
		v, ok, err := r.o.Vars(f.Key)
		if err != nil {
			r.errs = append(r.errs, placed(f, err))
		}
		if ok {
			out[f.Key] = v
		}
	}
	return out
}

func (r *reader) dependsOn(s *Service, n *node) {
	if !r.want(n, mapping, list) {
		return
	}
	for _, i := range n.Items {
		if d := r.text(i); d != "" {
			r.after[s.Name][d] = i
		}
	}
	for _, f := range n.Entries {
		required := true
		for _, k := range f.Value.Entries {
			switch v := k.Value.Text; k.Key {
			case "condition":
				switch v {
				case "service_started", "service_healthy":
				case "service_completed_successfully":
					r.refuse(k, "waiting until %s has ended is not supported", f.Key)
				default:
					r.bad(k, "condition %q; want service_started or service_healthy", v)
				}
			case "required":
				required = v != "false"
			case "restart":
			default:
				r.bad(k, "unknown key")
			}
		}
		if required || r.services.Find(f.Key) != nil {
			r.after[s.Name][f.Key] = f
		}
	}
}

// links reads additional names for services, and the dependency on them.
func (r *reader) links(s *Service, n *node) {
	for _, l := range r.texts(n) {
		to, alias, _ := strings.Cut(l, ":")
		r.after[s.Name][to] = n
		if alias != "" && alias != to {
			r.warn(n, "the link's name %s is without effect; %s is called %[2]s", alias, to)
		}
	}
}

func (r *reader) health(n *node) *sandbox.Health {
	if !r.want(n, mapping) {
		return nil
	}
	h := &sandbox.Health{}
	for _, f := range n.Entries {
		v := f.Value
		switch f.Key {
		case "test":
			switch {
			case v.Kind == scalar:
				h.Test = []string{"CMD-SHELL", r.text(v)}
			case r.want(v, list):
				h.Test = r.texts(v)
				if len(h.Test) > 0 && h.Test[0] != "CMD" && h.Test[0] != "CMD-SHELL" && h.Test[0] != "NONE" {
					r.bad(v, "a list begins with CMD, CMD-SHELL or NONE, not %q", h.Test[0])
				}
			}
		case "interval", "timeout", "start_period", "start_interval":
			d, err := parseDuration(r.text(v))
			if err != nil {
				r.bad(v, "%v", err)
			}
			*map[string]*timeSpan{"interval": &h.Interval, "timeout": &h.Timeout, "start_period": &h.StartPeriod,
				"start_interval": &h.StartInterval}[f.Key] = d
		case "retries":
			h.Retries = int(min(r.number(v), 1e6))
		case "disable":
			if v.Text == "true" {
				return &sandbox.Health{Test: []string{"NONE"}}
			}
		default:
			if !strings.HasPrefix(f.Key, "x-") {
				r.bad(f, "unknown key")
			}
		}
	}
	// An engine runs its first check after one interval and counts failures only then. Checking
	// earlier does no harm.
	if first := cmp.Or(h.Interval, 30*time.Second); h.StartPeriod < first {
		h.StartPeriod, h.StartInterval = first, cmp.Or(h.StartInterval, time.Second)
	}
	return h
}

// deploy reads resources and ignores the settings that only matter for clusters.
func (r *reader) deploy(s *Service, n *node) {
	if !r.want(n, mapping) {
		return
	}
	for _, f := range n.Entries {
		switch f.Key {
		case "replicas":
			if r.text(f.Value) != "1" {
				r.refuse(f, "%s replicas are not supported; want 1", f.Value.Text)
			}
		case "resources":
			for _, part := range f.Value.Entries {
				for _, k := range part.Value.Entries {
					r.resource(s, part.Key, k)
				}
			}
		case "restart_policy", "labels", "mode", "placement", "update_config", "rollback_config", "endpoint_mode":
		default:
			r.bad(f, "unknown key")
		}
	}
}

func (r *reader) resource(s *Service, part string, k field) {
	switch part + "." + k.Key {
	case "limits.cpus":
		s.Spec.CPUs = r.number(k.Value)
	case "limits.memory":
		s.Spec.Memory = r.size(k.Value)
	case "limits.pids":
		s.Spec.Pids = int(min(r.number(k.Value), 1<<22))
	case "reservations.cpus":
		s.Spec.Reserve.CPUs = r.number(k.Value)
	case "reservations.memory":
		s.Spec.Reserve.Memory = r.size(k.Value)
	case "reservations.devices":
		r.refuse(k, "devices (GPUs) are not supported")
	default:
		r.bad(k, "unknown key")
	}
}
