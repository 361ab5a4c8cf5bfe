package verify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/benchmarks/filetree"
	"github.com/evalrun/evalrun/benchmarks/harbor/format"
	"github.com/evalrun/evalrun/benchmarks/sandboxed"
	"github.com/evalrun/evalrun/benchmarks/score"
	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/runtime/executor"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// An Inspection looks for tampering during one grading on the agent's machine. [Guard.Begin] puts
// the tests there, the caller runs them, then End, Remark and Apply follow in this order.
type Inspection struct {
	*Guard
	rewards bool   // the reward's folder is inspected as well
	owner   string // of the reward's folder; "": the user of the machine's commands

	found       findings
	left        bool // processes that the agent left run beside the tests
	foreign     bool // processes that may run the agent's code do: those it left, or an ENTRYPOINT
	watching    bool // the reward's folder is being watched
	bothRewards bool // reward.json and reward.txt were written
	marked      bool // the use of the agent's changes is being watched
	used        []string
}

// findings are what was found of tampering: flags, and for each the paths or events that it stands
// for.
type findings struct {
	flags []string
	notes []string // "tampered_tests: /tests/x is none of the tests"
}

// add adds the flag if there are notes.
func (f *findings) add(flag string, notes ...string) {
	for _, n := range notes {
		f.flags = addFlags(f.flags, flag)
		if len(f.notes) < 50 {
			f.notes = append(f.notes, flag+": "+score.Clean(n))
		}
	}
}

// why says it in a sentence or two.
func (f *findings) why() string {
	const most = 6
	if len(f.notes) <= most {
		return strings.Join(f.notes, "; ")
	}
	return strings.Join(f.notes[:most], "; ") + "; …"
}

// Begin prepares the machine for the tests: compares it with what it was, empties /tests and puts
// the tests there. If the machine still responds and yet refuses, the agent has caused that:
// refused says why there is no reward. The Inspection is never nil.
func (g *Guard) Begin(ctx context.Context) (_ *Inspection, refused string, err error) {
	i := &Inspection{Guard: g}
	if err = i.begin(ctx); err != nil && g.trace == nil && agentsFault(ctx, g.sb, err) {
		return i, refusal(err), nil
	}
	return i, "", err
}

// agentsFault reports whether an operation on the agent's machine failed by what the agent did: the
// machine still responds.
func agentsFault(ctx context.Context, sb sandbox.Sandbox, err error) bool {
	return !errors.As(err, new(*sandbox.Unsupported)) && !errors.As(err, new(*benchmarks.TaskError)) &&
		Responds(ctx, sb)
}

func refusal(err error) string {
	return score.Clean("the machine that the agent left does not let itself be verified: " +
		sandboxed.Cause(err).Error())
}

func (i *Inspection) begin(ctx context.Context) error {
	for chunk := range slices.Chunk(i.stale, 500) { // Python makes it again; it may not match its source
		if err := i.m.Remove(ctx, chunk...); err != nil {
			return err
		}
	}
	i.stale = nil
	if st, ok := sandbox.As[sandbox.Stater](i.sb); ok {
		s, err := st.Stats(ctx)
		if err != nil {
			return err
		}
		i.left = s.Pids != nil && *s.Pids > 0
	}
	if err := i.clear(ctx); err != nil {
		return err
	}
	if i.rewards && i.left {
		if err := i.decoy(ctx); err != nil {
			return err
		}
	}
	if err := i.sb.Put(ctx, format.TestsDir, i.tests); err != nil {
		return err
	}
	if i.rewards && i.m != nil && (i.replay || i.mode == Off) { // as watchRewards does
		if err := sandboxed.MakeOpen(ctx, i.sb, format.VerifierLogs); err != nil {
			return err
		}
	}
	if m := i.m; m != nil && !i.replay && i.mode != Off {
		var watches []executor.Watch
		if i.rewards {
			watches = append(watches, executor.Watch{Path: "/logs"},
				executor.Watch{Path: format.VerifierLogs, Depth: 1})
		}
		watches = append(watches, executor.Watch{Path: format.TestsDir, Depth: -1})
		if err := m.Snapshot(ctx, watches); err != nil {
			return err
		}
		if i.rewards {
			if err := i.watchRewards(ctx, m); err != nil {
				return err
			}
		}
	}
	if err := i.unexpectedFiles(ctx); err != nil {
		return err
	}
	return i.mark(ctx)
}

// mark begins to watch which of the agent's changes the tests use. Nothing of ours reads them from
// here on.
func (i *Inspection) mark(ctx context.Context) error {
	if i.m == nil || i.replay || !i.mode.confirms() || len(i.marks) == 0 {
		return nil
	}
	missed, err := i.m.Mark(ctx, i.marks)
	if err != nil {
		return err
	}
	i.marked = true
	if len(missed) > 0 {
		i.doubt("the use of %s and %d others cannot be watched", missed[0], len(missed)-1)
	}
	return nil
}

// clear replaces /tests, and the reward's folder, by empty folders.
func (i *Inspection) clear(ctx context.Context) error {
	if i.rewards {
		odd, err := EmptyDirs(ctx, i.sb, i.owner, format.VerifierLogs)
		if err != nil {
			return err
		}
		i.found.add(FlagForged, odd...)
	}
	odd, err := EmptyDirs(ctx, i.sb, root, format.TestsDir)
	i.found.add(FlagTests, odd...)
	return err
}

// decoyTime is how long a decoy lies in the reward's folder.
const decoyTime = 150 * time.Millisecond

// decoy finds out whether a process that the agent left writes rewards: it lays a reward out before
// the tests run. All processes are ended if it was touched.
func (i *Inspection) decoy(ctx context.Context) error {
	const text = "0\n"
	t := filetree.New()
	t.Text("reward.txt", []byte(text), 0o644)
	if err := i.sb.Put(ctx, format.VerifierLogs, t); err != nil {
		return err
	}
	select {
	case <-time.After(decoyTime):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	txt, err := readFile(ctx, i.sb, format.VerifierLogs+"/reward.txt", maxReward)
	if err != nil {
		return err
	}
	js, err := readFile(ctx, i.sb, format.VerifierLogs+"/reward.json", maxReward)
	if err != nil {
		return err
	}
	if string(txt.text) != text || txt.irregular != "" || js.exists() {
		i.found.add(FlagForged, "a process that the agent left writes where the reward belongs; it was ended before "+
			"the verification")
		if err := i.sb.KillAll(ctx); err != nil {
			return err
		}
		i.left = false
	}
	return i.clear(ctx)
}

// watchRewards begins to watch the reward's folder, and opens it to every user if no process but
// the tests will run. Where it cannot be watched, the processes that the agent left are ended.
func (i *Inspection) watchRewards(ctx context.Context, m monitor) error {
	entrypoint, err := m.WatchDir(ctx, format.VerifierLogs)
	i.watching = err == nil
	i.foreign = i.watching && (i.left || entrypoint)
	switch {
	case i.watching && !i.foreign: // as in Harbor, for tests that have dropped their privileges
		return sandboxed.MakeOpen(ctx, i.sb, format.VerifierLogs)
	case !i.watching && i.left: // the agent used up the kernel's watches, or put a link there
		if err := i.sb.KillAll(ctx); err != nil {
			return err
		}
		i.left = false
		odd, err := EmptyDirs(ctx, i.sb, i.owner, format.VerifierLogs)
		i.found.add(FlagForged, odd...)
		return err
	}
	return nil
}

// unexpectedFiles looks in /tests for files that are none of the tests.
func (i *Inspection) unexpectedFiles(ctx context.Context) error {
	if !i.left {
		return nil
	}
	r, err := i.sb.Get(ctx, format.TestsDir)
	if err != nil {
		return err
	}
	defer r.Close()
	for f, err := range sandbox.Files(r, sandbox.Limits{}) {
		if err != nil && !errors.As(err, new(*sandbox.FileError)) {
			return err
		}
		name := strings.TrimPrefix(strings.TrimPrefix(f.Name, path.Base(format.TestsDir)), "/")
		if n := i.tests.Get(name); name != "" && (n == nil || n.Mode.Type() != f.Mode.Type()) {
			i.found.add(FlagTests, format.TestsDir+"/"+name+" is none of the tests")
		}
	}
	return nil
}

// traceSlowness is how many times its limit a traced command may take; see
// docs/decisions/second-opinion.md.
const traceSlowness = 5

// Exec runs a command of the tests.
func (i *Inspection) Exec(ctx context.Context, c sandbox.Command) (sandbox.Exit, error) {
	if i.trace == nil {
		return i.sb.Exec(ctx, c)
	}
	c.Timeout *= traceSlowness
	x, seen, err := i.m.Trace(ctx, c)
	if err != nil {
		return x, err
	}
	i.trace.add(seen)
	return x, i.trace.readNames(ctx, i.sb, seen.Executed)
}

// End ends all processes of the machine, so that nothing writes any more, and looks for changes
// that were made while the tests ran.
func (i *Inspection) End(ctx context.Context) error {
	if err := stopAll(ctx, i.sb); err != nil {
		return err
	}
	return i.changes(ctx)
}

// code are extensions of files that tests and their tools are made of.
var code = []string{".py", ".sh", ".pth", ".ini", ".cfg", ".toml", ".js", ".mjs", ".cjs", ".ts", ".so"}

// changes judges what became of the tests and of the reward's folder while the tests ran.
func (i *Inspection) changes(ctx context.Context) error {
	m := i.m
	if m == nil || i.replay || i.mode == Off {
		return nil
	}
	if i.marked {
		used, gap, err := m.Used(ctx)
		if err != nil {
			return err
		}
		if i.used = used; gap != "" {
			i.doubt("not all that the verifier used is known: %s", gap)
		}
	}
	list, _, err := m.Changes(ctx)
	if err != nil {
		return err
	}
	if i.watching {
		seen, err := m.DirEvents(ctx)
		if err != nil {
			return err
		}
		i.rewardWrites(seen)
	}
	others := i.left || i.foreign
	for _, c := range list {
		inTests, isDir := strings.HasPrefix(c.Path, format.TestsDir+"/"), c.Mode&0o170000 == 0o040000
		switch {
		case c.Path == format.TestsDir && c.What == executor.Gone && !others && len(i.found.flags) == 0:
			// Tests may remove what they brought.
		case c.Path == "/logs" || c.Path == format.VerifierLogs || c.Path == format.TestsDir:
			if c.What == executor.Gone || !isDir {
				i.found.add(FlagForged, c.Path+" was replaced while the verifier ran")
			}
		case strings.HasPrefix(c.Path, format.VerifierLogs+"/reward."):
			if c.Links > 1 {
				i.found.add(FlagNotRegular, c.Path+" has another name elsewhere")
			}
		case inTests && c.What == executor.Added && others && slices.Contains(code, path.Ext(c.Path)):
			i.found.add(FlagTests, c.Path+" came while the verifier ran")
		case inTests && c.What != executor.Added && !isDir && (others || len(i.found.flags) > 0):
			// Tests may change themselves, so this counts only where another process could have.
			i.found.add(FlagTests, c.Path+" changed while the verifier ran")
		}
	}
	return nil
}

// rewardWrites judges what was written into the reward's folder.
func (i *Inspection) rewardWrites(seen executor.DirEvents) {
	if !i.foreign {
		return // only the tests ran
	}
	isReward := func(name string) bool { return name == "reward.txt" || name == "reward.json" }
	if seen.Replaced {
		i.found.add(FlagForged, format.VerifierLogs+" was replaced by another folder while the verifier ran")
	}
	for _, name := range seen.Linked {
		if isReward(name) {
			i.found.add(FlagForged, format.VerifierLogs+"/"+name+
				" was not written there: somebody gave a file from elsewhere this name")
		}
	}
	if seen.Cut {
		i.found.add(FlagRewritten, format.VerifierLogs+" saw more changes than can be told")
	}
	for _, name := range seen.Again {
		if isReward(name) {
			i.found.add(FlagRewritten, format.VerifierLogs+"/"+name+" was written more than once")
		}
	}
	i.bothRewards = slices.Contains(seen.Written, "reward.txt") && slices.Contains(seen.Written, "reward.json")
}

// A testRun is what the log keeps of a run of the tests.
type testRun struct {
	Code     int         `json:"code"`
	TimedOut bool        `json:"timed_out,omitempty"`
	Output   *event.Blob `json:"output,omitempty"`
	Found    []string    `json:"found,omitempty"`
	Left     bool        `json:"left,omitempty"` // processes that the agent left ran beside the tests
}

// Remark appends to the log how the tests ended, their output and what was found.
func (i *Inspection) Remark(ctx context.Context, log event.Log, text string, x sandbox.Exit, out []byte) error {
	o := testRun{Code: x.Code, TimedOut: x.TimedOut, Found: i.found.notes, Left: i.left}
	if len(out) > 0 {
		b, err := log.PutBlob(ctx, "text/plain", bytes.NewReader(out))
		if err != nil {
			return err
		}
		o.Output = &b
	}
	return sandboxed.Note(ctx, log, "verifier", text, o)
}

// Apply adds what was found to a result, and whether it needs a second opinion. more are flags of the
// format's own that are tampering, too, if the result has them.
func (i *Inspection) Apply(res benchmarks.Result, more ...string) benchmarks.Result {
	res.Confirmation = i.confirmation()
	res.Uses = addUses(nil, record.Opened, i.used, func(string) bool { return false })
	for _, f := range more {
		if slices.Contains(res.Flags, f) {
			i.found.add(f, "seen in what the tests printed")
		}
	}
	res.Flags = addFlags(res.Flags, i.found.flags...)
	p := res.Primary()
	if p == nil || len(i.found.notes) == 0 {
		return res
	}
	why := i.found.why()
	if i.mode == Require && slices.ContainsFunc(res.Flags,
		func(f string) bool { return slices.Contains(tampering, f) || slices.Contains(more, f) }) {
		none := 0.0
		if p.Value != nil && *p.Value != 0 {
			why = fmt.Sprintf("0 for what was found (integrity: require); the verifier said %v: %s", *p.Value, why)
		}
		p.Value = &none
	}
	switch {
	case p.Why != "":
		why = p.Why + "; " + why
	case p.Value != nil && *p.Value != 0: // what was found does not explain a score above 0
		why = "the verifier said so; beside it: " + why
	}
	p.Why = score.Clip(score.Clean(why), 2500)
	return res
}

// confirmation says whether the result needs a second opinion.
func (i *Inspection) confirmation() *record.Confirmation {
	if i.replay || !i.mode.confirms() {
		return nil
	}
	c := &record.Confirmation{State: record.Pending, Zero: i.mode == Require}
	if i.m == nil {
		c.State, c.Why = record.Inapplicable, "the machine has no executor that could watch the verifier"
		return c
	}
	var why []string
	if len(i.used) > 0 {
		why = append(why, fmt.Sprintf("files outside of the work that the agent changed and the verifier used: %d",
			len(i.used)))
	}
	if i.left {
		why = append(why, "processes that the agent left ran beside the verifier")
	}
	for _, f := range i.found.flags {
		why = append(why, "flagged "+f)
	}
	why = append(why, i.unknown...)
	if i.mode == ConfirmAll && why == nil {
		why = append(why, "integrity: confirm-all")
	}
	c.Why = score.Clip(strings.Join(why, "; "), 1000)
	for _, p := range i.used[:min(len(i.used), 20)] {
		c.Slipped = append(c.Slipped, score.Clean(p))
	}
	return c
}

// addUses adds paths to a list of uses while there is room.
func addUses(list []record.PathUse, use string, paths []string, work func(name string) bool) []record.PathUse {
	for _, p := range paths[:min(len(paths), record.MaxUses-len(list))] {
		list = append(list, record.PathUse{Path: pathName(p), Use: use, Work: work(p)})
	}
	return list
}
