package compose

import (
	"path"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

// kept are the capabilities that machines have anyway.
var kept = []string{"CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETFCAP", "NET_BIND_SERVICE", "SYS_CHROOT"}

// noEffect are keys that change nothing that a task could count on; loud ones are told.
var (
	noEffect = []string{"labels", "annotations", "attach", "stdin_open", "tty", "init", "logging", "pull_policy", "develop", "expose", "stop_signal", "stop_grace_period"}
	loud     = []string{"ports", "ulimits", "dns", "dns_search", "dns_opt", "mac_address", "memswap_limit", "mem_swappiness", "oom_kill_disable", "oom_score_adj",
		"cpu_shares", "cpu_quota", "cpu_period", "cpuset", "cpu_percent", "cpu_rt_period", "cpu_rt_runtime", "blkio_config", "storage_opt", "domainname", "cap_drop"}
)

// service reads one service. One with a profile is not started, as compose has it.
func (r *reader) service(f field) {
	s := &Service{Name: f.name, Spec: sandbox.Spec{Setuid: true}}
	n := r.extend(f)
	if n == nil {
		return
	}
	if p := n.get("profiles"); p != nil && p.kind == list && len(p.items) > 0 && !slices.Contains(r.o.Main, f.name) {
		r.warn(p.place, "service %s has a profile, and is not started", f.name)
		return
	}
	r.p.Services[f.name] = s
	r.after[f.name] = map[string]string{}
	for _, k := range n.keys {
		r.key(s, k)
	}
	if s.Image == "" && s.Build == nil && !slices.Contains(r.o.Main, f.name) {
		r.bad(f.place, "service %s has neither an image nor a build", f.name)
	}
	slices.Sort(s.Spec.Aliases)
	s.Spec.Aliases = slices.DeleteFunc(slices.Compact(s.Spec.Aliases), func(a string) bool { return a == f.name })
}

// extend lays a service over the ones of the same file that it extends.
func (r *reader) extend(f field) *node {
	n := f.value
	if n.kind == null {
		return &node{place: f.place, kind: mapping}
	}
	if !r.want(n, "service "+f.name, mapping) {
		return nil
	}
	e := n.get("extends")
	if e == nil {
		return n
	}
	from := e.text
	if e.kind == mapping {
		from = ""
		for _, k := range e.keys {
			switch k.name {
			case "service":
				from = k.value.text
			case "file":
				r.refuse(k.place, "extends: a service of another file is not supported")
				return nil
			default:
				r.bad(k.place, "extends: unknown key %q", k.name)
			}
		}
	}
	base := r.services.get(from)
	if base == nil {
		r.bad(e.place, "extends: there is no service %q", from)
		return nil
	}
	if r.extended[f.name] {
		r.bad(e.place, "extends: service %s extends itself", f.name)
		return nil
	}
	r.extended[f.name] = true
	below := r.extend(field{from, e.place, base})
	delete(r.extended, f.name)
	if below == nil {
		return nil
	}
	return overlay(below, n)
}

// appended are the lists that an extending service adds to; all else that is no mapping it
// replaces.
var appended = []string{"expose", "ports", "tmpfs", "volumes", "cap_add", "security_opt", "env_file"}

func overlay(below, above *node) *node {
	out := &node{place: above.place, kind: mapping}
	for _, f := range below.keys {
		if over := above.get(f.name); over == nil {
			if f.name != "extends" && f.name != "depends_on" && f.name != "links" { // compose does not hand these down
				out.keys = append(out.keys, f)
			}
		} else {
			out.keys = append(out.keys, field{f.name, f.place, merge(f.name, f.value, over)})
		}
	}
	for _, f := range above.keys {
		if below.get(f.name) == nil && f.name != "extends" {
			out.keys = append(out.keys, f)
		}
	}
	return out
}

func merge(name string, below, above *node) *node {
	switch {
	case name == "environment" || name == "labels":
		return overlay(pairs(below), pairs(above))
	case below.kind == mapping && above.kind == mapping && name != "command":
		return overlay(below, above)
	case below.kind == list && above.kind == list && slices.Contains(appended, name):
		return &node{place: above.place, kind: list, items: slices.Concat(below.items, above.items)}
	}
	return above
}

// pairs is a list of NAME=value as a mapping.
func pairs(n *node) *node {
	if n.kind != list {
		return n
	}
	out := &node{place: n.place, kind: mapping}
	for _, i := range n.items {
		k, v, ok := strings.Cut(i.text, "=")
		value := &node{place: i.place}
		if ok {
			value.kind, value.text = scalar, v
		}
		if j := slices.IndexFunc(out.keys, func(f field) bool { return f.name == k }); j >= 0 {
			out.keys[j].value = value
			continue
		}
		out.keys = append(out.keys, field{k, i.place, value})
	}
	return out
}

func (r *reader) key(s *Service, f field) {
	n := f.value
	spec := &s.Spec
	switch f.name {
	case "image":
		s.Image = strings.TrimSpace(r.text(n, f.name))
	case "build":
		s.Build = r.build(n)
	case "command":
		spec.Cmd = r.words(n, f.name)
	case "entrypoint":
		if spec.Entrypoint = r.words(n, f.name); spec.Entrypoint == nil && n.kind != null {
			spec.Entrypoint = []string{} // switched off
		}
	case "environment":
		r.environment(s, n)
	case "env_file":
		r.envFiles(s, n)
	case "working_dir":
		if d := r.text(n, f.name); d != "" && !path.IsAbs(d) {
			r.bad(n.place, "working_dir: %q; want an absolute path", d)
		} else if d != "" {
			spec.Dir = path.Clean(d)
		}
	case "user":
		spec.User = r.text(n, f.name)
	case "depends_on":
		r.dependsOn(s, n)
	case "links":
		r.links(s, n)
	case "healthcheck":
		spec.Health = r.health(n)
	case "volumes":
		r.mounts(s, n)
	case "tmpfs":
		r.tmpfs(s, n)
	case "shm_size":
		spec.Shm = r.size(n, f.name)
	case "mem_limit":
		spec.Memory = r.size(n, f.name)
	case "mem_reservation":
		spec.Reserve.Memory = r.size(n, f.name)
	case "cpus", "cpu_count":
		spec.CPUs = r.number(n, f.name)
	case "pids_limit":
		if v := r.text(n, f.name); v != "-1" && v != "0" {
			spec.Pids = int(min(r.number(n, f.name), 1<<22))
		}
	case "deploy":
		r.deploy(s, n)
	case "scale":
		if r.text(n, f.name) != "1" {
			r.refuse(n.place, "service %s: scale %s is not supported; want 1", s.Name, n.text)
		}
	case "hostname", "container_name":
		if h := r.text(n, f.name); h != "" {
			spec.Aliases = append(spec.Aliases, h)
		}
	case "networks":
		r.join(s, n)
	case "network_mode":
		r.networkMode(s, n)
	case "platform":
		spec.Platform = r.text(n, f.name)
	case "restart":
		if v := r.text(n, f.name); v != "no" && v != "" {
			r.warn(f.place, "service %s: restart %s is without effect; what ends has ended", s.Name, v)
		}
	case "cap_add":
		for _, c := range r.texts(n, f.name) {
			if !slices.Contains(kept, strings.TrimPrefix(strings.ToUpper(c), "CAP_")) {
				r.refuse(n.place, "service %s: cap_add %s is not supported", s.Name, c)
			}
		}
	case "security_opt":
		for _, o := range r.texts(n, f.name) {
			switch strings.ReplaceAll(o, "=", ":") {
			case "no-new-privileges", "no-new-privileges:true":
				spec.Setuid = false
			case "no-new-privileges:false":
			default:
				r.refuse(n.place, "service %s: security_opt %s is not supported", s.Name, o)
			}
		}
	case "privileged", "read_only", "oom_kill_enabled", "use_api_socket":
		if b, err := parseBool(r.text(n, f.name)); err != nil || b {
			r.refuse(f.place, "service %s: %s is not supported", s.Name, f.name)
		}
	case "pid", "ipc", "uts", "userns_mode", "cgroup":
		if v := r.text(n, f.name); v != "" && v != "private" && v != "shareable" {
			r.refuse(f.place, "service %s: %s %s is not supported", s.Name, f.name, v)
		}
	case "secrets", "configs", "devices", "gpus", "runtime", "isolation", "cgroup_parent", "volumes_from", "external_links", "extra_hosts", "group_add", "sysctls",
		"device_cgroup_rules", "credential_spec", "post_start", "pre_stop", "provider", "models":
		if n.kind != null && (n.kind == scalar || len(n.items)+len(n.keys) > 0) {
			r.refuse(f.place, "service %s: %s is not supported", s.Name, f.name)
		}
	case "extends", "profiles":
	default:
		switch {
		case slices.Contains(noEffect, f.name), strings.HasPrefix(f.name, "x-"):
		case slices.Contains(loud, f.name):
			r.warn(f.place, "service %s: %s is without effect here", s.Name, f.name)
		default:
			r.bad(f.place, "service %s: unknown key %q", s.Name, f.name)
		}
	}
}

// text is a single value; "" when there is none.
func (r *reader) text(n *node, what string) string {
	if !r.want(n, what, scalar) {
		return ""
	}
	if strings.ContainsRune(n.text, 0) {
		r.bad(n.place, "%s: a NUL in it", what)
		return ""
	}
	return n.text
}

// texts is a list of values; a single one stands for a list of it.
func (r *reader) texts(n *node, what string) (out []string) {
	if !r.want(n, what, list, scalar) {
		return nil
	}
	if n.kind == scalar {
		return []string{r.text(n, what)}
	}
	for _, i := range n.items {
		out = append(out, r.text(i, what))
	}
	return out
}

// words is a command line, as a list or as a text that is cut as a shell does.
func (r *reader) words(n *node, what string) []string {
	if n.kind != scalar {
		return r.texts(n, what)
	}
	out, err := split(r.text(n, what))
	if err != nil {
		r.bad(n.place, "%s: %v", what, err)
	}
	return out
}

func (r *reader) size(n *node, what string) int64 {
	v, err := parseSize(r.text(n, what))
	if err != nil && n.kind == scalar && n.text != "" { // a variable without a value is no limit
		r.bad(n.place, "%s: %v", what, err)
	}
	return v
}

func (r *reader) number(n *node, what string) float64 {
	v, err := parseNumber(r.text(n, what))
	if err != nil && n.kind == scalar && n.text != "" {
		r.bad(n.place, "%s: %v", what, err)
	}
	return v
}
