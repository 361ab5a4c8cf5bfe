package format

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/harness/record"
)

// Load reads a task folder. name is the folder's; it is the task's where task.toml gives none. The
// error lists all that is wrong, with places; a task with an error cannot be played. fsys must not
// lead out of the folder by links (os.Root's does not).
func Load(fsys fs.FS, name string) (*Task, error) {
	text, err := readText(fsys, "task.toml")
	if err != nil {
		return nil, err
	}
	w, err := readTaskTOML(text)
	if w == nil {
		return nil, err
	}
	l := &loader{fsys: fsys, w: w, t: &w.task}
	if err != nil {
		l.errs = append(l.errs, err)
	}
	if l.t.Name == "" {
		if l.t.Name = name; name == "" || strings.ContainsRune(name, 0) {
			l.bad("%q is no name of a task", name)
		}
	}
	l.environment(&l.t.Environment)
	l.steps()
	if err == nil { // what cannot be read at all need not be hashed
		if l.t.Digest, err = taskDigest(fsys); err != nil {
			l.errs = append(l.errs, err)
		}
		if l.t.EnvHash, err = environmentHash(fsys, "environment", l.t.Environment.Image); err != nil {
			l.errs = append(l.errs, err)
		}
	}
	if len(l.errs) > 0 {
		return nil, errors.Join(distinctErrors(l.errs)...)
	}
	return l.t, nil
}

// distinctErrors drops errors with the same text.
func distinctErrors(errs []error) (out []error) {
	seen := map[string]bool{}
	for _, err := range errs {
		if s := err.Error(); !seen[s] {
			seen[s] = true
			out = append(out, err)
		}
	}
	return out
}

type loader struct {
	fsys fs.FS
	w    *taskFile
	t    *Task
	errs []error
}

func (l *loader) bad(format string, args ...any) {
	l.errs = append(l.errs, fmt.Errorf(format, args...))
}

func (l *loader) warn(format string, args ...any) {
	if s := fmt.Sprintf(format, args...); !slices.Contains(l.t.Warnings, s) {
		l.t.Warnings = append(l.t.Warnings, s)
	}
}

func (l *loader) isFile(name string) bool {
	info, err := fs.Stat(l.fsys, name)
	return err == nil && info.Mode().IsRegular()
}

func (l *loader) isDir(name string) bool {
	info, err := fs.Stat(l.fsys, name)
	return err == nil && info.IsDir()
}

// environment reads the files of an environment that the agent works in.
func (l *loader) environment(e *Environment) {
	if !l.isDir(e.Dir) {
		l.bad("the folder %s is missing; it may be empty when task.toml names a docker_image", e.Dir)
		return
	}
	l.definition(e)
	if e.Image != "" || e.Dockerfile != "" || e.Compose != nil {
		e.Upload = e.Dockerfile == "" && e.Compose == nil && l.any(e.Dir)
		return
	}
	l.bad("nothing defines the environment; add %s/Dockerfile, %[1]s/docker-compose.yaml, or docker_image to "+
		"[environment]", e.Dir)
}

// any reports whether a folder holds anything.
func (l *loader) any(dir string) bool {
	entries, err := fs.ReadDir(l.fsys, dir)
	return err == nil && len(entries) > 0
}

// definition reads a folder's Dockerfile and compose file.
func (l *loader) definition(e *Environment) {
	if name := path.Join(e.Dir, "Dockerfile"); l.isFile(name) {
		e.Dockerfile = l.text(name)
		if e.Dockerfile == "" {
			l.bad("%s is empty", name)
		}
	}
	l.compose(e)
}

// text reads a text file; what is not UTF-8 in it is replaced.
func (l *loader) text(name string) string {
	b, err := readText(l.fsys, name)
	if err != nil {
		l.errs = append(l.errs, err)
		return ""
	}
	s := string(bytes.TrimPrefix(b, []byte("\xef\xbb\xbf")))
	if v := strings.ToValidUTF8(s, "\ufffd"); v != s {
		l.warn("%s: not UTF-8; what cannot be read is replaced", name)
		return v
	}
	return s
}

func (l *loader) instruction(name string) string {
	b, err := readText(l.fsys, name)
	if errors.Is(err, fs.ErrNotExist) {
		l.bad("%s is missing", name)
		return ""
	}
	if err != nil {
		l.errs = append(l.errs, err)
		return ""
	}
	text, err := cleanInstruction(b)
	if err != nil {
		l.bad("%s: %v", name, err)
	}
	return text
}

// steps makes the task's steps of what is written, each with what it inherits.
func (l *loader) steps() {
	w, t := l.w, l.t
	if len(w.steps) == 0 {
		t.Steps = []Step{l.step(stepTable{}, ".")}
		return
	}
	t.Multi = true
	if t.Strategy == "" {
		t.Strategy = "mean"
	}
	for _, s := range w.steps {
		t.Steps = append(t.Steps, l.step(s, path.Join("steps", s.name)))
	}
}

func (l *loader) step(s stepTable, dir string) Step {
	w := l.w
	multi := dir != "."
	out := Step{
		Name: s.name, Dir: dir, MinReward: s.minReward, Health: s.health,
		Timeout:   valueOr(first(s.agent.timeout, w.agent.timeout), 0),
		User:      valueOr(first(s.agent.user, w.agent.user), ""),
		Network:   first(s.agent.network, w.agent.network),
		Artifacts: append(slices.Clone(w.artifacts), s.artifacts...),
	}
	if multi && !l.isDir(dir) {
		l.bad("step %q: the folder %s is missing", s.name, dir)
		return out
	}
	out.Instruction = l.instruction(path.Join(dir, "instruction.md"))
	if work := path.Join(dir, "workdir"); multi && l.isDir(work) {
		out.Workdir, out.Setup = work, l.isFile(path.Join(work, "setup.sh"))
	}
	for _, sol := range []string{path.Join(dir, "solution"), "solution"} {
		if l.isFile(path.Join(sol, "solve.sh")) {
			out.Solution = sol
			break
		}
	}
	out.Verifier = l.verifier(s, dir)
	return out
}

func first[T any](list ...*T) *T {
	for _, p := range list {
		if p != nil {
			return p
		}
	}
	return nil
}

func (l *loader) verifier(s stepTable, dir string) Verifier {
	task, own := l.w.verifier, s.verifier
	v := Verifier{
		Env: task.env.Merge(own.env), User: valueOr(first(own.user, task.user), ""),
		Network: first(own.network, task.network),
		Collect: append(slices.Clone(task.collect), own.collect...),
		Timeout: valueOr(first(own.timeout, task.timeout), defaultVerify),
	}
	if own.timeout == nil && s.name != "" {
		// Harbor gives a step without a limit the default of 600 s whatever the task says. A task
		// that says more means it.
		v.Timeout = max(v.Timeout, defaultVerify)
	}
	mode := own.effectiveMode()
	if mode == "" {
		mode = task.effectiveMode()
	}
	tests := []string{"tests"}
	if dir != "." {
		tests = append(tests, path.Join(dir, "tests"))
	}
	if mode != "separate" {
		script := false
		for _, d := range tests {
			if l.isDir(d) {
				v.Tests = append(v.Tests, d)
				script = script || l.isFile(path.Join(d, "test.sh"))
			}
		}
		if !script && l.t.Environment.OS != "windows" {
			l.errs = append(l.errs, &benchmarks.Defect{Kind: record.FaultNoTest, Err: fmt.Errorf(
				"%sno test script; add %s", inStep(s.name), strings.Join(tests, "/test.sh or ")+"/test.sh")})
		}
		return v
	}
	v.Separate = true
	var e Environment
	switch {
	case own.environment != nil:
		e = *own.environment
	case task.environment != nil:
		e = *task.environment
	default:
		e = l.t.Environment
		e.Dockerfile, e.Compose, e.Refused, e.Upload = "", nil, "", false
	}
	e.Dir = "tests"
	if own := tests[len(tests)-1]; l.isDir(own) {
		e.Dir = own
	}
	l.definition(&e)
	if e.Image == "" && e.Dockerfile == "" && e.Compose == nil {
		l.bad("%sa separate verifier needs %s/Dockerfile, or a docker_image", inStep(s.name), e.Dir)
	}
	v.Environment = &e
	return v
}

func inStep(name string) string {
	if name == "" {
		return ""
	}
	return fmt.Sprintf("step %q: ", name)
}

// effectiveMode is the mode that a [verifier] table asks for; "": none.
func (v verifierTable) effectiveMode() string {
	if v.mode == "" && v.environment != nil {
		return "separate"
	}
	return v.mode
}
