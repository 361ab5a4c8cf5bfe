package compose

import (
	"path"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

// kept are the capabilities that machines have by default.
var kept = []string{"CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETFCAP",
	"NET_BIND_SERVICE", "SYS_CHROOT"}

// noEffect lists keys without any effect that a task could rely on. Keys in loud cause a warning.
var (
	noEffect = []string{"labels", "annotations", "attach", "stdin_open", "tty", "init", "logging", "pull_policy",
		"develop", "expose", "stop_signal", "stop_grace_period"}
	loud = []string{"ports", "ulimits", "dns", "dns_search", "dns_opt", "mac_address", "memswap_limit",
		"mem_swappiness", "oom_kill_disable", "oom_score_adj",
		"cpu_shares", "cpu_quota", "cpu_period", "cpuset", "cpu_percent", "cpu_rt_period", "cpu_rt_runtime",
		"blkio_config", "storage_opt", "domainname", "cap_drop"}
)

// service reads one service. A service with a profile is not started, as in compose.
func (r *reader) service(f field) {
	s := &Service{Name: f.Key, Spec: sandbox.Spec{Setuid: true}}
	n := r.extend(f)
	if n == nil {
		return
	}
	if p := n.Find("profiles"); p != nil && p.Kind == list && len(p.Items) > 0 && !slices.Contains(r.o.Main, f.Key) {
		r.warn(p, "service %s has a profile, and is not started", f.Key)
		return
	}
	r.p.Services[f.Key] = s
	r.after[f.Key] = map[string]spot{}
	for _, k := range n.Entries {
		r.key(s, k)
	}
	if s.Image == "" && s.Build == nil && !slices.Contains(r.o.Main, f.Key) {
		r.bad(f, "service %s has neither an image nor a build", f.Key)
	}
	slices.Sort(s.Spec.Aliases)
	s.Spec.Aliases = slices.DeleteFunc(slices.Compact(s.Spec.Aliases), func(a string) bool { return a == f.Key })
}

// extend merges a service with the services of the same file that it extends.
func (r *reader) extend(f field) *node {
	n := f.Value
	if n.Kind == null {
		return &node{Kind: mapping, Pos: f.Pos}
	}
	if !r.want(n, mapping) {
		return nil
	}
	e := n.Find("extends")
	if e == nil {
		return n
	}
	from := e.Text
	if e.Kind == mapping {
		from = ""
		for _, k := range e.Entries {
			switch k.Key {
			case "service":
				from = k.Value.Text
			case "file":
				r.refuse(k, "a service of another file is not supported")
				return nil
			default:
				r.bad(k, "unknown key")
			}
		}
	}
	base := r.services.Find(from)
	if base == nil {
		r.bad(e, "there is no service %q", from)
		return nil
	}
	if r.extended[f.Key] {
		r.bad(e, "service %s extends itself", f.Key)
		return nil
	}
	r.extended[f.Key] = true
	below := r.extend(field{Key: from, Pos: e.Pos, Value: base})
	delete(r.extended, f.Key)
	if below == nil {
		return nil
	}
	return overlay(below, n)
}

// appended are the list keys to which an extending service adds. Every other value that is not a
// mapping is replaced.
var appended = []string{"expose", "ports", "tmpfs", "volumes", "cap_add", "security_opt", "env_file"}

func overlay(below, above *node) *node {
	out := &node{Kind: mapping, Pos: above.Pos}
	for _, f := range below.Entries {
		if over := above.Find(f.Key); over == nil {
			// compose does not inherit these
			if f.Key != "extends" && f.Key != "depends_on" && f.Key != "links" {
				out.Entries = append(out.Entries, f)
			}
		} else {
			out.Entries = append(out.Entries, field{Key: f.Key, Pos: f.Pos, Value: merge(f.Key, f.Value, over)})
		}
	}
	for _, f := range above.Entries {
		if below.Find(f.Key) == nil && f.Key != "extends" {
			out.Entries = append(out.Entries, f)
		}
	}
	return out
}

func merge(name string, below, above *node) *node {
	switch {
	case name == "environment" || name == "labels":
		return overlay(pairs(below), pairs(above))
	case below.Kind == mapping && above.Kind == mapping && name != "command":
		return overlay(below, above)
	case below.Kind == list && above.Kind == list && slices.Contains(appended, name):
		return &node{Kind: list, Pos: above.Pos, Items: slices.Concat(below.Items, above.Items)}
	}
	return above
}

// pairs converts a list of NAME=value to a mapping.
func pairs(n *node) *node {
	if n.Kind != list {
		return n
	}
	out := &node{Kind: mapping, Pos: n.Pos}
	for _, i := range n.Items {
		k, v, ok := strings.Cut(i.Text, "=")
		value := i.Part(v)
		if !ok {
			value.Kind = null
		}
		if j := slices.IndexFunc(out.Entries, func(f field) bool { return f.Key == k }); j >= 0 {
			out.Entries[j].Value = value
			continue
		}
		out.Entries = append(out.Entries, field{Key: k, Pos: i.Pos, Value: value})
	}
	return out
}

func (r *reader) key(s *Service, f field) {
	n := f.Value
	spec := &s.Spec
	switch f.Key {
	case "image":
		s.Image = strings.TrimSpace(r.text(n))
	case "build":
		s.Build = r.build(n)
	case "command":
		spec.Cmd = r.words(n)
	case "entrypoint":
		if spec.Entrypoint = r.words(n); spec.Entrypoint == nil && n.Kind != null {
			spec.Entrypoint = []string{} // disabled
		}
	case "environment":
		r.environment(s, n)
	case "env_file":
		r.envFiles(s, n)
	case "working_dir":
		if d := r.text(n); d != "" && !path.IsAbs(d) {
			r.bad(n, "%q; want an absolute path", d)
		} else if d != "" {
			spec.Dir = path.Clean(d)
		}
	case "user":
		spec.User = r.text(n)
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
		spec.Shm = r.size(n)
	case "mem_limit":
		spec.Memory = r.size(n)
	case "mem_reservation":
		spec.Reserve.Memory = r.size(n)
	case "cpus", "cpu_count":
		spec.CPUs = r.number(n)
	case "pids_limit":
		if v := r.text(n); v != "-1" && v != "0" {
			spec.Pids = int(min(r.number(n), 1<<22))
		}
	case "deploy":
		r.deploy(s, n)
	case "scale":
		if r.text(n) != "1" {
			r.refuse(n, "scale %s is not supported; want 1", n.Text)
		}
	case "hostname", "container_name":
		if h := r.text(n); h != "" {
			spec.Aliases = append(spec.Aliases, h)
		}
	case "networks":
		r.join(s, n)
	case "network_mode":
		r.networkMode(s, n)
	case "platform":
		spec.Platform = r.text(n)
	case "restart":
		if v := r.text(n); v != "no" && v != "" {
			r.warn(f, "restart %s is without effect; what ends has ended", v)
		}
	case "cap_add":
		for _, c := range r.texts(n) {
			if !slices.Contains(kept, strings.TrimPrefix(strings.ToUpper(c), "CAP_")) {
				r.refuse(n, "cap_add %s is not supported", c)
			}
		}
	case "security_opt":
		for _, o := range r.texts(n) {
			switch strings.ReplaceAll(o, "=", ":") {
			case "no-new-privileges", "no-new-privileges:true":
				spec.Setuid = false
			case "no-new-privileges:false":
			default:
				r.refuse(n, "security_opt %s is not supported", o)
			}
		}
	case "privileged", "read_only", "oom_kill_enabled", "use_api_socket":
		if b, err := parseBool(r.text(n)); err != nil || b {
			r.refuse(f, "%s is not supported", f.Key)
		}
	case "pid", "ipc", "uts", "userns_mode", "cgroup":
		if v := r.text(n); v != "" && v != "private" && v != "shareable" {
			r.refuse(f, "%s %s is not supported", f.Key, v)
		}
	case "secrets", "configs", "devices", "gpus", "runtime", "isolation", "cgroup_parent", "volumes_from",
		"external_links", "extra_hosts", "group_add", "sysctls",
		"device_cgroup_rules", "credential_spec", "post_start", "pre_stop", "provider", "models":
		if n.Kind != null && (n.Kind == scalar || len(n.Items)+len(n.Entries) > 0) {
			r.refuse(f, "%s is not supported", f.Key)
		}
	case "extends", "profiles":
	default:
		switch {
		case slices.Contains(noEffect, f.Key), strings.HasPrefix(f.Key, "x-"):
		case slices.Contains(loud, f.Key):
			r.warn(f, "%s is without effect here", f.Key)
		default:
			r.bad(f, "unknown key")
		}
	}
}

// text returns a scalar value, or "" if there is none.
func (r *reader) text(n *node) string {
	if !r.want(n, scalar) {
		return ""
	}
	if strings.ContainsRune(n.Text, 0) {
		r.bad(n, "a NUL in it")
		return ""
	}
	return n.Text
}

// texts returns a list of values. A scalar counts as a list of one.
func (r *reader) texts(n *node) (out []string) {
	if !r.want(n, list, scalar) {
		return nil
	}
	if n.Kind == scalar {
		return []string{r.text(n)}
	}
	for _, i := range n.Items {
		out = append(out, r.text(i))
	}
	return out
}

// words returns a command line, given as a list, or as a string that is split like a shell does.
func (r *reader) words(n *node) []string {
	if n.Kind != scalar {
		return r.texts(n)
	}
	out, err := split(r.text(n))
	if err != nil {
		r.bad(n, "%v", err)
	}
	return out
}

func (r *reader) size(n *node) int64 {
	v, err := parseSize(r.text(n))
	if err != nil && n.Kind == scalar && n.Text != "" { // a variable without a value means no limit
		r.bad(n, "%v", err)
	}
	return v
}

func (r *reader) number(n *node) float64 {
	v, err := parseNumber(r.text(n))
	if err != nil && n.Kind == scalar && n.Text != "" {
		r.bad(n, "%v", err)
	}
	return v
}
