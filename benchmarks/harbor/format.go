package harbor

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// Defaults of the format.
const (
	defaultSchema  = "1.4"
	defaultBuild   = 600 * time.Second
	defaultVerify  = 600 * time.Second
	defaultCollect = 60 * time.Second
)

// A written task is a task.toml before steps inherit and files are looked at.
type written struct {
	task      Task
	agent     phase
	verifier  verifier
	artifacts []Artifact
	steps     []step
	old       bool // schema 1.1 or before
}

// phase is [agent], or what [verifier] shares with it.
type phase struct {
	timeout *time.Duration
	user    *string
	network *sandbox.Network
}

type verifier struct {
	phase
	env         Env
	mode        string // "", "shared", "separate"
	environment *Environment
	collect     []Hook
}

type step struct {
	name      string
	agent     phase
	verifier  verifier
	minReward map[string]float64
	health    *sandbox.Health
	artifacts []Artifact
}

// readTOML reads the text of a task.toml. All errors are reported together, with their places.
func readTOML(text []byte) (*written, error) {
	t, err := parseTOML("task.toml", text)
	if err != nil {
		return nil, err
	}
	w := &written{}
	w.read(t)
	w.task.Warnings = t.f.warns
	return w, errors.Join(t.f.errs...)
}

func (w *written) read(t *table) {
	defer t.end()
	w.task.Schema = t.text("schema_version")
	if old := t.text("version"); w.task.Schema == "" {
		w.task.Schema = old
	}
	w.old = w.task.Schema == "1.0" || w.task.Schema == "1.1"
	if w.task.Schema == "" {
		w.task.Schema = defaultSchema
	}
	w.task.From = t.text("source")
	w.artifacts = readArtifacts(t)
	switch s := t.text("multi_step_reward_strategy"); s {
	case "mean", "final":
		w.task.Strategy = s
	case "":
	default:
		t.bad("multi_step_reward_strategy", "%q; want mean or final", s)
	}
	if _, ok := t.get("multi_step_reward_mode"); ok {
		t.warn("multi_step_reward_mode", "a name from before schema 1.3, ignored; write multi_step_reward_strategy")
	}
	w.readPackage(t.table("task"))
	if m := t.table("metadata"); m != nil {
		raw, err := json.Marshal(m.m)
		if err != nil {
			t.bad("metadata", "%v", err)
		}
		w.task.Metadata = raw
	}
	if a := t.table("agent"); a != nil {
		w.agent = a.phase()
		a.end()
	}
	w.verifier = w.readVerifier(t.table("verifier"))
	w.task.Environment = w.readEnvironment(t.table("environment"), "environment")
	if s := t.table("solution"); s != nil {
		w.task.SolutionEnv = s.env()
		s.end()
	}
	steps, listed := t.tables("steps")
	if listed && len(steps) == 0 {
		t.bad("steps", "want at least one step, or no such key")
	}
	names := map[string]bool{}
	for _, s := range steps {
		x := w.readStep(s)
		if names[x.name] {
			s.bad("name", "two steps are called %q", x.name)
		}
		names[x.name] = true
		w.steps = append(w.steps, x)
	}
	if w.task.Strategy != "" && !listed {
		t.warn("multi_step_reward_strategy", "the task has no steps")
	}
	for _, s := range w.steps {
		overlaps(t, append(slices.Clone(w.artifacts), s.artifacts...))
	}
	if len(w.steps) == 0 {
		overlaps(t, w.artifacts)
	}
}

var packageName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*$`)

func (w *written) readPackage(t *table) {
	if t == nil {
		return
	}
	defer t.end()
	w.task.Name = t.text("name")
	if n := w.task.Name; !packageName.MatchString(n) || strings.Contains(n, "..") || len(n) > 200 {
		t.bad("name", "%q; want organisation/name of letters, digits, ., _ and -, each beginning with a letter or digit", n)
	}
	p := &Package{Version: t.text("version"), Description: t.text("description")}
	if _, ok := t.m["version"]; ok && p.Version == "" {
		t.bad("version", "is empty")
	}
	authors, _ := t.tables("authors")
	for _, a := range authors {
		x := Author{a.text("name"), a.text("email")}
		if x.Name == "" {
			a.bad("", "an author without a name")
		}
		a.end()
		p.Authors = append(p.Authors, x)
	}
	p.Keywords, _ = t.list("keywords")
	w.task.Package = p
}

// seconds is a time limit, nil when it is not there.
func (t *table) seconds(key string, zero bool) *time.Duration {
	n := t.number(key)
	if n == nil {
		return nil
	}
	if *n < 0 || *n == 0 && !zero {
		t.bad(key, "%v; want a number of seconds above 0", *n)
		return nil
	}
	d := seconds(*n)
	return &d
}

// or is a value, or its default.
func or[T any](p *T, d T) T {
	if p == nil {
		return d
	}
	return *p
}

// phase reads timeout_sec, user, network_mode and allowed_hosts.
func (t *table) phase() (p phase) {
	p.timeout = t.seconds("timeout_sec", false)
	p.user = t.user("user")
	hosts, listed := t.list("allowed_hosts")
	var err error
	if p.network, err = policy(t.text("network_mode"), hosts, listed); err != nil {
		t.bad("", "%v", err)
	}
	return p
}

// user is a name, or a number that stands for one.
func (t *table) user(key string) *string {
	v, ok := t.get(key)
	if !ok {
		return nil
	}
	s := ""
	switch x := v.(type) {
	case string:
		s = x
	case int64:
		s = strconv.FormatInt(x, 10)
	default:
		t.bad(key, "want a user's name or number")
		return nil
	}
	if !userName.MatchString(s) {
		t.bad(key, "%q is no user's name or number", s)
	}
	return &s
}

var userName = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_.-]{0,63}\$?|[0-9]{1,10})(:([A-Za-z_][A-Za-z0-9_.-]{0,63}|[0-9]{1,10}))?$`)

var envName = regexp.MustCompile(`^[^=\x00]+$`)

func (t *table) env() Env {
	e := t.texts("env")
	for _, k := range slices.Sorted(maps.Keys(e)) {
		if !envName.MatchString(k) {
			t.bad("env", "%q is no name of a variable", k)
		}
	}
	return e
}

func (w *written) readVerifier(t *table) (v verifier) {
	if t == nil {
		return v
	}
	defer t.end()
	v.phase = t.phase()
	v.env = t.env()
	switch v.mode = t.text("environment_mode"); v.mode {
	case "", "shared", "separate":
	default:
		t.bad("environment_mode", "%q; want shared or separate", v.mode)
	}
	if e := t.table("environment"); e != nil {
		env := w.readEnvironment(e, "")
		v.environment = &env
		if v.mode == "shared" {
			t.bad("environment_mode", "a shared verifier has no environment of its own; remove one of the two")
		}
	}
	hooks, _ := t.tables("collect")
	for _, h := range hooks {
		x := Hook{Command: h.text("command"), Service: Main, Timeout: or(h.seconds("timeout_sec", false), defaultCollect), User: or(h.user("user"), "")}
		if s := h.text("service"); s != "" {
			x.Service = s
		}
		if x.Command == "" {
			h.bad("command", "a hook without a command")
		}
		h.end()
		v.collect = append(v.collect, x)
	}
	return v
}

func (w *written) readStep(t *table) (s step) {
	defer t.end()
	s.name = t.text("name")
	if !fileName(s.name) {
		t.bad("name", "%q; want the name of a folder in steps/", s.name)
	}
	if a := t.table("agent"); a != nil {
		s.agent = a.phase()
		a.end()
	}
	s.verifier = w.readVerifier(t.table("verifier"))
	if v, ok := t.get("min_reward"); ok {
		s.minReward = map[string]float64{}
		if m, ok := v.(map[string]any); ok {
			sub := t.sub("min_reward", m)
			for _, k := range slices.Sorted(maps.Keys(m)) {
				s.minReward[k] = or(sub.number(k), 0)
			}
		} else if n := t.number("min_reward"); n != nil {
			s.minReward["reward"] = *n
		}
	}
	s.health = t.health("healthcheck")
	s.artifacts = readArtifacts(t)
	return s
}

// fileName reports whether s is a safe name of one folder.
func fileName(s string) bool {
	return s != "" && s != "." && s != ".." && len(s) <= 200 && !strings.ContainsAny(s, "/\\\x00")
}

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
		Interval:      or(h.seconds("interval_sec", true), 5*time.Second),
		Timeout:       or(h.seconds("timeout_sec", false), 30*time.Second),
		StartPeriod:   or(h.seconds("start_period_sec", true), 0),
		StartInterval: or(h.seconds("start_interval_sec", true), 5*time.Second),
		Retries:       int(or(h.integer("retries", 1), 3)),
	}
}

// readEnvironment reads [environment] or a verifier's. dir is where its files are, as far as that is known.
func (w *written) readEnvironment(t *table, dir string) Environment {
	e := Environment{Dir: dir, OS: "linux", BuildTimeout: defaultBuild, Network: sandbox.Network{Mode: "public"}}
	if w.old {
		e.CPUs, e.Memory, e.Storage = 1, 2048<<20, 10240<<20
	}
	if t == nil {
		return e
	}
	defer t.end()
	e.BuildTimeout = or(t.seconds("build_timeout_sec", false), e.BuildTimeout)
	e.Image = strings.TrimSpace(t.text("docker_image"))
	if strings.ContainsAny(e.Image, " \t\r\n") {
		t.bad("docker_image", "%q is no name of an image", e.Image)
	}
	if os := strings.ToLower(t.text("os")); os != "" {
		if e.OS = os; os != "linux" && os != "windows" {
			t.bad("os", "%q; want linux or windows", os)
		}
	}
	e.CPUs = or(t.cpus("cpus"), e.CPUs)
	e.Memory = t.size("memory", e.Memory)
	e.Storage = t.size("storage", e.Storage)
	e.GPUs = int(or(t.integer("gpus", 0), 0))
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
		m := agent.MCPServer{Name: s.text("name"), Transport: s.text("transport"), URL: s.text("url"), Command: s.text("command")}
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

// readArtifacts reads the key artifacts: texts and tables.
func readArtifacts(t *table) (out []Artifact) {
	v, ok := t.get("artifacts")
	if !ok {
		return nil
	}
	list, ok := v.([]any)
	if !ok {
		t.bad("artifacts", "want a list")
		return nil
	}
	for i, v := range list {
		key := fmt.Sprintf("artifacts[%d]", i)
		var a Artifact
		switch x := v.(type) {
		case string:
			a.Source = x
		case map[string]any:
			s := t.sub(key, x)
			a = Artifact{Source: s.text("source"), Destination: s.text("destination"), Service: s.text("service")}
			a.Exclude, _ = s.list("exclude")
			s.end()
		default:
			t.bad(key, "want a path or a table with a source")
			continue
		}
		if a.Service == Main {
			a.Service = ""
		}
		if why := a.check(); why != "" {
			t.bad(key, "%s", why)
			continue
		}
		out = append(out, a)
	}
	return out
}

// check says what is wrong with an artifact's paths; it cleans them.
func (a *Artifact) check() string {
	switch {
	case a.Source == "" || strings.ContainsRune(a.Source, 0):
		return "an artifact needs a source"
	case hasParent(a.Source):
		return fmt.Sprintf("source %q has a .. in it", a.Source)
	case a.Service != "" && !path.IsAbs(a.Source):
		return fmt.Sprintf("source %q of service %s; want an absolute path", a.Source, a.Service)
	}
	a.Source = path.Clean(a.Source)
	if a.Source == "/" || a.Source == "." {
		return fmt.Sprintf("source %q is a whole machine", a.Source)
	}
	d := a.Destination
	if d == "" {
		return ""
	}
	if path.IsAbs(d) || hasParent(d) || strings.ContainsAny(d, "\\\x00") || path.Clean(d) == "." || path.Clean(d) == "manifest.json" {
		return fmt.Sprintf("destination %q; want a relative path with forward slashes, without .., and not manifest.json", d)
	}
	a.Destination = path.Clean(d)
	return ""
}

func hasParent(p string) bool { return slices.Contains(strings.Split(p, "/"), "..") }

// To is where an artifact is kept in the artifacts' folder.
func (a Artifact) To() string {
	if a.Destination != "" {
		return a.Destination
	}
	return strings.TrimPrefix(a.Source, "/")
}

// overlaps notes artifacts of one machine of which one holds the other, or that would be kept in one place.
func overlaps(t *table, list []Artifact) {
	below := func(a, b string) bool { return a == b || strings.HasPrefix(a, b+"/") }
	for i, a := range list {
		for _, b := range list[:i] {
			if a.Service == b.Service && (below(a.Source, b.Source) || below(b.Source, a.Source)) {
				t.bad("artifacts", "%q and %q overlap", b.Source, a.Source)
			} else if a.Service == b.Service && (below(a.To(), b.To()) || below(b.To(), a.To())) {
				t.bad("artifacts", "%q and %q would be kept in the same place", b.Source, a.Source)
			}
		}
	}
}
