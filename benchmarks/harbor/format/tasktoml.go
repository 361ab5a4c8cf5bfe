package format

import (
	"encoding/json"
	"errors"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

// Defaults of the format.
const (
	defaultSchema  = "1.4"
	defaultBuild   = 600 * time.Second
	defaultVerify  = 600 * time.Second
	defaultCollect = 60 * time.Second
)

// A taskFile task is a task.toml before steps inherit and files are looked at.
type taskFile struct {
	task      Task
	agent     phase
	verifier  verifierTable
	artifacts []Artifact
	steps     []stepTable
	old       bool // schema 1.1 or before
}

// phase is [agent], or what [verifier] shares with it.
type phase struct {
	timeout *time.Duration
	user    *string
	network *sandbox.Network
}

type verifierTable struct {
	phase
	env         Env
	mode        string // "", "shared", "separate"
	environment *Environment
	collect     []Hook
}

type stepTable struct {
	name      string
	agent     phase
	verifier  verifierTable
	minReward map[string]float64
	health    *sandbox.Health
	artifacts []Artifact
}

// readTaskTOML reads the text of a task.toml. All errors are reported together, with their places.
func readTaskTOML(text []byte) (*taskFile, error) {
	t, err := parseTOML("task.toml", text)
	if err != nil {
		return nil, err
	}
	w := &taskFile{}
	w.read(t)
	w.task.Warnings = t.f.warns
	return w, errors.Join(t.f.errs...)
}

func (w *taskFile) read(t *table) {
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

func (w *taskFile) readPackage(t *table) {
	if t == nil {
		return
	}
	defer t.end()
	w.task.Name = t.text("name")
	if n := w.task.Name; !packageName.MatchString(n) || strings.Contains(n, "..") || len(n) > 200 {
		t.bad("name", "%q; want organisation/name of letters, digits, ., _ and -, each beginning with a "+
			"letter or digit", n)
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
	d := Seconds(*n)
	return &d
}

// maxDuration caps time limits, so that adding one to the current time does not overflow.
const maxDuration = 10 * 365 * 24 * time.Hour

// Seconds is a duration of at most maxDuration, ten years.
func Seconds(s float64) time.Duration {
	if s >= maxDuration.Seconds() {
		return maxDuration
	}
	return time.Duration(s * float64(time.Second))
}

// valueOr is *p, or d if p is nil.
func valueOr[T any](p *T, d T) T {
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

func (w *taskFile) readVerifier(t *table) (v verifierTable) {
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
		x := Hook{Command: h.text("command"), Service: MainService,
			Timeout: valueOr(h.seconds("timeout_sec", false), defaultCollect), User: valueOr(h.user("user"), "")}
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

func (w *taskFile) readStep(t *table) (s stepTable) {
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
				s.minReward[k] = valueOr(sub.number(k), 0)
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
