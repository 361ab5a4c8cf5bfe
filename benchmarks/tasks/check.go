package tasks

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// maxScript is the maximum length of a script. It is passed as one argument, and Linux limits an
// argument to 128 KiB.
const maxScript = 100 << 10

// stages returns the task's stages, each with its grade. A task without a list of stages has one
// stage, made of its own keys.
func (t *Task) stages() []Stage {
	list := t.Stages
	if len(list) == 0 {
		list = []Stage{t.Stage}
	}
	list = slices.Clone(list)
	for i, s := range list {
		g := Grade{}
		if s.Grade != nil {
			g = *s.Grade
		}
		if g.Answer == nil && g.Function == nil && g.Script == "" {
			g.Answer = s.Answer // "answer: 42" alone, or next to a grade that says how to compare
			list[i].Answer = nil
		}
		list[i].Grade = &g
	}
	return list
}

// dir returns the working directory.
func (t *Task) dir() string {
	if t.Dir == "" {
		return "/workspace"
	}
	return t.Dir
}

// validate returns all errors of a task.
func (t *Task) validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if t.ID == "" || strings.ContainsRune(t.ID, 0) {
		bad("the task has no id")
	}
	if t.Dir != "" && (!path.IsAbs(t.Dir) || path.Clean(t.Dir) != t.Dir || t.Dir == "/") {
		bad("dir %q: want an absolute path below /, such as /app", t.Dir)
	}
	if t.Limits.CPUs < 0 || t.Limits.Pids < 0 {
		bad("limits: a limit below 0")
	}
	if own := t.Stage; len(t.Stages) > 0 &&
		(own.Instruction != "" || own.Answer != nil || own.Grade != nil || own.Oracle != nil || own.Leave ||
			own.Time != 0) {
		bad("the task has stages, so instruction, answer, grade, oracle, leave and time belong into them (files and " +
			"setup may stay: they come first)")
	}
	if t.Browser != nil {
		errs = append(errs, t.Browser.validate(t)...)
		errs = append(errs, t.stages()[0].graded(t.Browser)...)
		return errors.Join(errs...)
	}
	seen := map[string]bool{}
	for i, s := range t.stages() {
		where := ""
		if len(t.Stages) > 0 {
			where = fmt.Sprintf("stage %d: ", i+1)
		}
		for _, err := range s.validate(t.dir()) {
			bad("%s%w", where, err)
		}
		if seen[s.Instruction] {
			bad("%sits instruction is an earlier stage's", where)
		}
		seen[s.Instruction] = true
	}
	return errors.Join(errs...)
}

func (s *Stage) validate(dir string) (errs []error) {
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if strings.TrimSpace(s.Instruction) == "" {
		bad("no instruction")
	}
	errs = append(errs, items("files", s.Files)...)
	script := func(what, text string) {
		if len(text) > maxScript {
			bad("%s: %d KiB of script; at most %d: put it into a file and call that", what, len(text)>>10,
				maxScript>>10)
		} else if _, err := interpreter(text); err != nil {
			bad("%s: %w", what, err)
		}
	}
	script("setup", s.Setup)
	if s.Oracle != nil {
		script("oracle", s.Oracle.Script)
	}
	g := s.Grade
	if g.Success != nil || g.URL != "" || s.Oracle != nil && (len(s.Oracle.Actions) > 0 || s.Oracle.Take != nil) {
		bad("grade.success, grade.url and an oracle's actions and take are of tasks in a browser; add browser")
	}
	if len(s.Answer) > 0 {
		bad("answer stands beside a grade of another kind, or with an answer of its own: keep one")
	}
	kinds := 0
	for _, is := range []bool{len(g.Answer) > 0, g.Function != nil, g.Script != ""} {
		if is {
			kinds++
		}
	}
	if kinds != 1 {
		bad("it is graded in %d ways; want one of grade.script, grade.function and answer", kinds)
		return errs
	}
	errs = append(errs, g.answers()...)
	if f := g.Function; f != nil {
		if !identifier(f.Name) {
			bad("grade.function: name %q is not a Python name", f.Name)
		}
		if strings.TrimSpace(f.Check) == "" {
			bad("grade.function: no check; write a Python function check(candidate) that raises when " +
				"something is wrong")
		}
		if f.File != "" && !fs.ValidPath(f.File) {
			bad("grade.function: file %q: want a path below the working directory", f.File)
		}
	}
	script("grade.script", g.Script)
	errs = append(errs, items("grade.files", g.Files)...)
	if g.Script == "" && (g.Files != nil || g.Collect != nil || g.Partial || g.Shared) {
		bad("grade: files, collect, partial and shared go with a script")
	}
	if g.Shared && g.Collect != nil {
		bad("grade: shared grades in the agent's machine, so there is nothing to collect")
	}
	if s.Leave && !g.Shared {
		bad("leave keeps processes for a grader in the same machine: add grade.shared")
	}
	for _, c := range g.Collect {
		if p := below(dir, c); p == "/" || c == "" || strings.ContainsRune(c, 0) {
			bad("grade.collect: %q; want paths of files or folders, relative to the working directory or absolute", c)
		}
	}
	return errs
}

// answers returns the errors in the expected answers.
func (g *Grade) answers() (errs []error) {
	if len(g.Answer) == 0 {
		return nil
	}
	if _, err := g.spec().Compile(); err != nil {
		errs = append(errs, fmt.Errorf("answer: %w", err))
	}
	for _, r := range g.Answer {
		if strings.TrimSpace(r) == "" {
			errs = append(errs, errors.New("answer: an empty text is never right"))
		}
	}
	return errs
}

// below returns p, which is absolute or relative to dir, as an absolute path.
func below(dir, p string) string {
	if path.IsAbs(p) {
		return path.Clean(p)
	}
	return path.Join(dir, p)
}

func items(what string, files map[string]Item) (errs []error) {
	for _, name := range sorted(files) {
		i := files[name]
		if clean := strings.TrimSuffix(name, "/"); !fs.ValidPath(clean) || clean == "." && i.From == "" ||
			strings.ContainsRune(name, 0) {
			errs = append(errs, fmt.Errorf("%s: %q: want a relative path, without \".\" and \"..\" in it", what, name))
		}
		n := 0
		for _, is := range []bool{i.Text != "", i.Base64 != nil, i.From != ""} {
			if is {
				n++
			}
		}
		if n > 1 {
			errs = append(errs, fmt.Errorf("%s: %q: want one of text, base64 and from", what, name))
		}
		if i.From != "" && !fs.ValidPath(path.Clean(i.From)) {
			errs = append(errs, fmt.Errorf("%s: %q: from %q leaves the folder of the tasks", what, name, i.From))
		}
	}
	return errs
}

func sorted[V any](m map[string]V) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func identifier(s string) bool {
	for i, r := range s {
		if r != '_' && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return s != ""
}
