package harbor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/evalrun/evalrun/benchmarks/harbor/format"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/benchmarks/filetree"
	"github.com/evalrun/evalrun/benchmarks/score"
	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/runtime/executor"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// maxStdout is what is kept of a verifier's output: the beginning and the end.
const maxStdout = 4 << 20

// A verification of one step.
type verification struct {
	b     *Benchmark
	h     benchmarks.Host
	task  *format.Task
	id    string
	i     int
	step  *format.Step
	files fs.FS
	get   format.Lookup

	sb    sandbox.Sandbox
	dir   string
	last  bool // nothing of the machine is needed after the verifier
	found findings
	left  bool // processes of the agent's run beside the verifier
	vigil bool // the reward's folder is watched
	both  bool // reward.json and reward.txt were written

	beside bool // processes that may carry code of the agent's ran beside the verifier: what it left, or an ENTRYPOINT
}

// shared verifies on the agent's machine. Its files are first compared with what they were, then
// /logs/verifier and /tests are made new, the tests put there, and test.sh run. A machine that
// answers and yet does not do its part was brought to that by the agent: no reward.
func (v *verification) shared(ctx context.Context, g *episode) (benchmarks.Result, error) {
	v.sb, v.dir, v.last = g.sb, g.dir, v.i == len(v.task.Steps)-1
	res, err := v.onShared(ctx, g)
	if err == nil || errors.As(err, new(*sandbox.Unsupported)) || errors.As(err, new(*benchmarks.TaskError)) ||
		!answers(ctx, v.sb) {
		return res, err
	}
	why := "the machine that the agent left does not let itself be verified: " + inner(err).Error()
	return noReward(why), remark(ctx, v.h.Log(), "verifier", why, verified{Found: v.found.notes, Left: v.left})
}

func (v *verification) onShared(ctx context.Context, g *episode) (res benchmarks.Result, err error) {
	if g.guard != nil {
		if err := g.guard.compare(ctx, v.sb, &v.found); err != nil {
			return res, err
		}
	}
	if st, ok := sandbox.As[sandbox.Stater](v.sb); ok {
		s, err := st.Stats(ctx)
		if err != nil {
			return res, err
		}
		v.left = s.Pids != nil && *s.Pids > 0
	}
	if err := v.clear(ctx); err != nil {
		return res, err
	}
	tests, err := format.Scripts(v.files, v.step.Verifier.Tests...)
	if err != nil {
		return res, &benchmarks.TaskError{Task: v.id, Err: fmt.Errorf("reading the tests: %w", err)}
	}
	if v.left {
		if err := v.bait(ctx); err != nil {
			return res, err
		}
	}
	if err := v.sb.Put(ctx, format.TestsDir, tests); err != nil {
		return res, err
	}
	if m, ok := minderOf(v.sb); ok {
		if _, err := m.Mark(ctx, beforeTests, false,
			[]executor.Watch{{Path: "/logs"}, {Path: format.VerifierLogs, Depth: 1},
				{Path: format.TestsDir, Depth: -1}}); err != nil {
			return res, err
		}
	}
	if m, ok := minderOf(v.sb); ok {
		entry, err := m.Vigil(ctx, format.VerifierLogs)
		v.vigil = err == nil
		v.beside = v.vigil && (v.left || entry)
		switch {
		case v.vigil && !v.beside: // as in Harbor everybody may write there, a test that has dropped its privileges say
			if err := open777(ctx, v.sb, format.VerifierLogs); err != nil {
				return res, err
			}
			// whoever has used up the kernel's watches, or put a link there: nobody is left alone
			// with the reward
		case !v.vigil && v.left:
			if err := v.sb.KillAll(ctx); err != nil {
				return res, err
			}
			v.left = false
			odd, err := clearDirs(ctx, v.sb, v.step.Verifier.User, format.VerifierLogs)
			if err != nil {
				return res, err
			}
			for _, o := range odd {
				v.found.add(FlagForged, o)
			}
		}
	}
	if err := v.strangers(ctx, tests); err != nil {
		return res, err
	}
	if err := g.rewire(ctx, g.b.Policies(v.task, v.i, g.o).Verifier); err != nil {
		return res, err
	}
	script := ""
	for _, d := range v.step.Verifier.Tests { // the step's own before the shared one
		if info, err := fs.Stat(v.files, path.Join(d, "test.sh")); err == nil && info.Mode().IsRegular() {
			script = path.Join(d, "test.sh")
		}
	}
	args, err := format.ScriptCommand(v.files, script, format.TestsDir+"/test.sh")
	if err != nil {
		return res, &benchmarks.TaskError{Task: v.id, Err: err}
	}
	return v.run(ctx, args)
}

// clear makes /logs/verifier and /tests new.
func (v *verification) clear(ctx context.Context) error {
	odd, err := clearDirs(ctx, v.sb, v.step.Verifier.User, format.VerifierLogs)
	if err != nil {
		return err
	}
	more, err := clearDirs(ctx, v.sb, superuser, format.TestsDir)
	if err != nil {
		return err
	}
	for _, o := range odd {
		v.found.add(FlagForged, o)
	}
	for _, o := range more {
		v.found.add(FlagTests, o)
	}
	return nil
}

// baited is how long somebody may take to bite.
const baited = 150 * time.Millisecond

// bait looks whether a process that the agent left is after the reward: it lays one out before
// there is a verifier. Who touches it is found out, and does not run beside the verifier.
func (v *verification) bait(ctx context.Context) error {
	const text = "0\n"
	t := filetree.New()
	t.Text("reward.txt", []byte(text), 0o644)
	if err := v.sb.Put(ctx, format.VerifierLogs, t); err != nil {
		return err
	}
	select {
	case <-time.After(baited):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	got, err := readFile(ctx, v.sb, format.VerifierLogs+"/reward.txt", maxReward)
	if err != nil {
		return err
	}
	other, err := readFile(ctx, v.sb, format.VerifierLogs+"/reward.json", maxReward)
	if err != nil {
		return err
	}
	if string(got.text) != text || got.odd != "" || other.there() {
		v.found.add(FlagForged, "a process that the agent left writes where the reward belongs; it was ended before "+
			"the verification")
		if err := v.sb.KillAll(ctx); err != nil {
			return err
		}
		v.left = false
	}
	return v.clear(ctx)
}

// strangers looks for files between the tests that are none of them.
func (v *verification) strangers(ctx context.Context, tests *filetree.Tree) error {
	if !v.left {
		return nil
	}
	r, err := v.sb.Get(ctx, format.TestsDir)
	if err != nil {
		return err
	}
	defer r.Close()
	for f, err := range sandbox.Files(r, sandbox.Limits{}) {
		if err != nil && !errors.As(err, new(*sandbox.FileError)) {
			return err
		}
		name := strings.TrimPrefix(strings.TrimPrefix(f.Name, path.Base(format.TestsDir)), "/")
		if n := tests.Get(name); name != "" && (n == nil || n.Mode.Type() != f.Mode.Type()) {
			v.found.add(FlagTests, format.TestsDir+"/"+name+" is none of the tests")
		}
	}
	return nil
}

// run runs the tests and reads the reward.
func (v *verification) run(ctx context.Context, args []string) (res benchmarks.Result, err error) {
	env, err := v.environ()
	if err != nil {
		return res, &benchmarks.TaskError{Task: v.id, Err: err}
	}
	limit := v.b.o.Times().Verifier(v.step.Verifier.Timeout)
	var out bytes.Buffer
	x, err := v.sb.Exec(ctx, sandbox.Command{Args: args, User: v.step.Verifier.User, Env: env, Stdout: &out,
		Limit: maxStdout, FullLimit: -1, Timeout: limit})
	if err != nil {
		return res, err
	}
	blob, err := keepText(ctx, v.h.Log(), bytes.NewReader(out.Bytes()), out.Len())
	if err != nil {
		return res, err
	}
	if v.last {
		// Nothing is to write from here on.
		if err := EndAll(ctx, v.sb); err != nil {
			return res, err
		}
	}
	if !v.step.Verifier.Separate {
		if err := v.after(ctx); err != nil {
			return res, err
		}
	}
	res, err = v.reward(ctx, x, limit, out.Bytes())
	if err != nil {
		return res, err
	}
	kept := verified{x.Code, x.TimedOut, blob, v.found.notes, v.left}
	var last tail
	last.Write(out.Bytes())
	return res, remark(ctx, v.h.Log(), "verifier", "the verifier "+x.How(limit)+": "+last.String(), kept)
}

// verified is what the log keeps of a verifier.
type verified struct {
	Code     int         `json:"code"`
	TimedOut bool        `json:"timed_out,omitempty"`
	Output   *event.Blob `json:"output,omitempty"`
	Found    []string    `json:"found,omitempty"`
	Left     bool        `json:"left,omitempty"` // processes of the agent's ran beside it
}

// environ are the verifier's own variables; there are none of the agent's making.
func (v *verification) environ() (map[string]string, error) {
	return v.step.Verifier.Env.Merge(format.Env(v.b.o.VerifierEnv)).Resolve("verifier.env", v.get)
}

// code are files that tests and their tools are made of.
var code = []string{".py", ".sh", ".pth", ".ini", ".cfg", ".toml", ".js", ".mjs", ".cjs", ".ts", ".so"}

// after looks at what became of the tests and of the reward's folder while the verifier ran.
func (v *verification) after(ctx context.Context) error {
	m, ok := minderOf(v.sb)
	if !ok {
		return nil
	}
	list, _, err := m.Changes(ctx, beforeTests)
	if err != nil {
		return err
	}
	if v.vigil {
		seen, err := m.VigilEnd(ctx)
		if err != nil {
			return err
		}
		v.watched(seen)
	}
	for _, c := range list {
		switch {
		case c.Path == format.TestsDir && c.What == executor.Gone && !v.left && !v.beside && len(v.found.flags) == 0:
			// Tests may clear away what they brought.
		case c.Path == "/logs" || c.Path == format.VerifierLogs || c.Path == format.TestsDir:
			if c.What == executor.Gone || c.Mode&0o170000 != 0o040000 {
				v.found.add(FlagForged, c.Path+" was replaced while the verifier ran")
			}
		case strings.HasPrefix(c.Path, format.VerifierLogs+"/reward."):
			if c.Links > 1 {
				v.found.add(FlagNotRegular, c.Path+" has another name elsewhere")
			}
		case strings.HasPrefix(c.Path, format.TestsDir+"/") && c.What == executor.Added && (v.left || v.beside) &&
			slices.Contains(code, path.Ext(c.Path)):
			v.found.add(FlagTests, c.Path+" came while the verifier ran")
		case strings.HasPrefix(c.Path, format.TestsDir+"/") && c.What != executor.Added && c.Mode&0o170000 != 0o040000 &&
			len(v.found.flags)+btoi(v.left || v.beside) > 0:
			// Tests may change themselves; it tells something only where somebody else could have.
			v.found.add(FlagTests, c.Path+" changed while the verifier ran")
		}
	}
	return nil
}

// watched judges what became of the reward's folder.
func (v *verification) watched(seen executor.Vigil) {
	if !v.beside {
		return // there was nobody but the verifier
	}
	isReward := func(name string) bool { return name == "reward.txt" || name == "reward.json" }
	if seen.Replaced {
		v.found.add(FlagForged, format.VerifierLogs+" was replaced by another folder while the verifier ran")
	}
	for _, name := range seen.Linked {
		if isReward(name) {
			v.found.add(FlagForged, format.VerifierLogs+"/"+name+
				" was not written there: somebody gave a file from elsewhere this name")
		}
	}
	if seen.Cut {
		v.found.add(FlagRewritten, format.VerifierLogs+" saw more changes than can be told")
	}
	for _, name := range seen.Again {
		if isReward(name) {
			v.found.add(FlagRewritten, format.VerifierLogs+"/"+name+" was written more than once")
		}
	}
	v.both = slices.Contains(seen.Written, "reward.txt") && slices.Contains(seen.Written, "reward.json")
}

// gains reports whether reward.json, which counts, may be there to say more than reward.txt. Who
// lays it beside the verifier's own to say less, or a reward.txt beside the verifier's reward.json,
// has gained nothing.
func gains(js, txt file) bool {
	if js.text == nil || txt.text == nil {
		return true
	}
	a, _, err := Rewards(js.text, nil)
	b, _, err2 := Rewards(nil, txt.text)
	if err != nil || err2 != nil {
		return true
	}
	x, y := (&benchmarks.Result{Scores: a}).Primary(), (&benchmarks.Result{Scores: b}).Primary()
	return *x.Value > *y.Value
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// reward reads what the verifier left, and makes the result.
func (v *verification) reward(ctx context.Context, x sandbox.Exit, limit time.Duration,
	out []byte) (res benchmarks.Result, err error) {
	var files [3]file
	for i, f := range []struct {
		name string
		max  int64
	}{{"reward.json", maxReward}, {"reward.txt", maxReward}, {"ctrf.json", maxReport}} {
		if files[i], err = readFile(ctx, v.sb, format.VerifierLogs+"/"+f.name, f.max); err != nil {
			return res, err
		}
	}
	tests := CTRF(files[2].text)
	if len(tests) == 0 {
		tests = Pytest(out)
	}
	scores, flags, err := v.scores(files[0], files[1])
	if v.both && gains(files[0], files[1]) {
		v.found.add(FlagRewritten, "reward.json and reward.txt were both written, and reward.json, which "+
			"counts, says more")
	}
	if v.beside && x.Signal != "" && !x.TimedOut && err == nil {
		v.found.add(FlagForged, "there is a reward, and the verifier was ended by "+x.Signal+" beside other processes")
	}
	var bad *RewardError
	switch {
	case x.TimedOut:
		res = noReward(fmt.Sprintf("%s: the verifier ran longer than %v", errTimeout, limit), flags...)
	case errors.As(err, &bad):
		why := bad.Error()
		if bad.Name == errNotFound || bad.Name == errEmpty {
			var last tail
			last.Write(out)
			why += fmt.Sprintf("; test.sh %s: %s", x.How(limit), last.String())
		}
		res = noReward(why, flags...)
	default:
		res = benchmarks.Result{Scores: scores, Flags: flags}
		if p := res.Primary(); p.Why == "" && (p.Value == nil || *p.Value < 1) {
			p.Why = score.Clip(failures(tests), 2500)
		}
	}
	res.Tests = tests
	return res, nil
}

// scores refuses what is no file before it reads.
func (v *verification) scores(js, txt file) ([]record.Score, []string, error) {
	for _, f := range []struct {
		name string
		file
	}{{"reward.json", js}, {"reward.txt", txt}} {
		if f.odd != "" {
			return nil, []string{FlagNotRegular}, &RewardError{errParse, f.name + " is " + f.odd}
		}
		if f.text != nil { // reward.json counts where it is there
			break
		}
	}
	return Rewards(js.text, txt.text)
}

// A file of a machine, as far as it is one.
type file struct {
	text []byte // nil: there is none
	odd  string // what is there instead
}

func (f file) there() bool { return f.text != nil || f.odd != "" }

func readFile(ctx context.Context, sb sandbox.Sandbox, name string, max int64) (file, error) {
	text, err := sandbox.ReadFile(ctx, sb, name, max)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return file{}, nil
	case errors.Is(err, sandbox.ErrTooLarge):
		return file{odd: fmt.Sprintf("larger than %d MiB", max>>20)}, nil
	case errors.As(err, new(*sandbox.FileError)):
		return file{odd: "not a regular file"}, nil
	case err != nil:
		return file{}, err
	case text == nil:
		text = []byte{}
	}
	return file{text: text}, nil
}
