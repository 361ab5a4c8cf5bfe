package format

import (
	"path"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

func (t *table) health(key string) *sandbox.Health {
	h := t.table(key)
	if h == nil {
		return nil
	}
	defer h.end()
	command := h.text("command")
	if command == "" {
		h.bad("command", "a health check without a command")
	}
	return &sandbox.Health{
		Test:          []string{"bash", "-c", command},
		Interval:      valueOr(h.seconds("interval_sec", true), 5*time.Second),
		Timeout:       valueOr(h.seconds("timeout_sec", false), 30*time.Second),
		StartPeriod:   valueOr(h.seconds("start_period_sec", true), 0),
		StartInterval: valueOr(h.seconds("start_interval_sec", true), 5*time.Second),
		Retries:       int(valueOr(h.integer("retries", 1), 3)),
	}
}

// readEnvironment reads [environment] or a verifier's. dir is where its files are, as far as that
// is known.
func (w *taskFile) readEnvironment(t *table, dir string) Environment {
	e := Environment{Dir: dir, OS: "linux", BuildTimeout: defaultBuild, Network: sandbox.Network{Mode: "public"}}
	if w.old {
		e.CPUs, e.Memory, e.Storage = 1, 2048<<20, 10240<<20
	}
	if t == nil {
		return e
	}
	defer t.end()
	e.BuildTimeout = valueOr(t.seconds("build_timeout_sec", false), e.BuildTimeout)
	e.Image = strings.TrimSpace(t.text("docker_image"))
	if strings.ContainsAny(e.Image, " \t\r\n") {
		t.bad("docker_image", "%q is no name of an image", e.Image)
	}
	if os := strings.ToLower(t.text("os")); os != "" {
		if e.OS = os; os != "linux" && os != "windows" {
			t.bad("os", "%q; want linux or windows", os)
		}
	}
	e.CPUs = valueOr(t.cpus("cpus"), e.CPUs)
	e.Memory = t.size("memory", e.Memory)
	e.Storage = t.size("storage", e.Storage)
	e.GPUs = int(valueOr(t.integer("gpus", 0), 0))
	e.GPUTypes, _ = t.list("gpu_types")
	if tpu := t.table("tpu"); tpu != nil {
		e.TPU = &TPU{tpu.text("type"), tpu.text("topology")}
		if e.TPU.Type == "" {
			tpu.bad("type", "a tpu without a type")
		}
		tpu.end()
	}
	e.Network = t.baseline()
	e.Env = t.env()
	e.Workdir = t.absolute("workdir")
	e.SkillsDir = t.absolute("skills_dir")
	e.MCP = t.servers()
	e.Health = t.health("healthcheck")
	return e
}

func (t *table) cpus(key string) *float64 {
	n := t.number(key)
	if n != nil && (*n <= 0 || *n > 4096) {
		t.bad(key, "%v; want a number of cores above 0", *n)
		return nil
	}
	return n
}

var windowsPath = regexp.MustCompile(`^[A-Za-z]:[/\\\\]`)

// absolute is a path in the machine.
func (t *table) absolute(key string) string {
	p := t.text(key)
	if p == "" {
		return ""
	}
	if windowsPath.MatchString(p) {
		return p // of a task that is not run here
	}
	if !path.IsAbs(p) {
		t.bad(key, "%q; want an absolute path in the machine", p)
		return ""
	}
	return path.Clean(p)
}

func (t *table) baseline() sandbox.Network {
	hosts, listed := t.list("allowed_hosts")
	n, err := policy(t.text("network_mode"), hosts, listed)
	if err != nil {
		t.bad("", "%v", err)
	}
	internet := t.boolean("allow_internet")
	switch {
	case n != nil:
		return *n
	case internet != nil && !*internet:
		return sandbox.Network{Mode: "none"}
	}
	return sandbox.Network{Mode: "public"}
}

var oldSize = regexp.MustCompile(`^(?i)([0-9]+(?:\.[0-9]+)?)\s*([GMK])B?$`)

// size is KEY_mb, or the old form KEY = "2G", in bytes. Both may be there when they agree.
func (t *table) size(key string, otherwise int64) int64 {
	mb := t.integer(key+"_mb", 1)
	text := t.text(key)
	if text == "" {
		if mb == nil {
			return otherwise
		}
		return *mb << 20
	}
	m := oldSize.FindStringSubmatch(strings.TrimSpace(text))
	if m == nil {
		t.bad(key, "%q; want a size such as 2G, 512M or 1024K, or better %s_mb", text, key)
		return otherwise
	}
	n, _ := strconv.ParseFloat(m[1], 64)
	bytes := n * map[string]float64{"G": 1 << 30, "M": 1 << 20, "K": 1 << 10}[strings.ToUpper(m[2])]
	switch {
	case bytes < 1 || bytes > 1<<60:
		t.bad(key, "%q is out of range", text)
		return otherwise
	case mb != nil && *mb != int64(bytes)>>20:
		t.bad(key, "%q disagrees with %s_mb = %d; remove it", text, key, *mb)
	}
	return int64(bytes)
}

func (t *table) servers() (out []agent.MCPServer) {
	list, _ := t.tables("mcp_servers")
	names := map[string]bool{}
	for _, s := range list {
		m := agent.MCPServer{Name: s.text("name"), Transport: s.text("transport"), URL: s.text("url"),
			Command: s.text("command")}
		m.Args, _ = s.list("args")
		m.Headers, m.Env = s.texts("headers"), s.texts("env")
		s.end()
		if m.Name == "" || names[m.Name] {
			s.bad("name", "%q; want a name that no other server has", m.Name)
		}
		names[m.Name] = true
		switch m.Transport {
		case "":
			m.Transport = "sse"
		case "http":
			m.Transport = "streamable-http"
		case "sse", "streamable-http", "stdio":
		default:
			s.bad("transport", "%q; want sse, streamable-http or stdio", m.Transport)
		}
		if m.Transport == "stdio" && m.Command == "" {
			s.bad("command", "a stdio server needs a command")
		} else if m.Transport != "stdio" && m.URL == "" {
			s.bad("url", "a server over %s needs a url", m.Transport)
		}
		out = append(out, m)
	}
	return out
}
