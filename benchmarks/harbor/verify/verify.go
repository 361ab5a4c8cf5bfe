// Package verify grades a task in Harbor's format after the agent has ended: it keeps artifacts,
// looks for tampering with what the tests depend on, runs the tests and reads their reward.
//
// A [Verifier] runs test.sh, either on the agent's machine, which a [Guard] has watched since
// before the agent began, or on a fresh machine that gets the artifacts of a [Collector]. Formats
// with rewards of their own use a Guard and its [Inspection] alone. Machines are the caller's:
// nothing here creates, configures or closes one.
package verify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/benchmarks/harbor/format"
	"github.com/evalrun/evalrun/benchmarks/sandboxed"
	"github.com/evalrun/evalrun/benchmarks/score"
	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// maxStdout is how much of a verifier's output is kept: its beginning and its end.
const maxStdout = 4 << 20

// A Verifier runs the tests of one step and reads the reward that they write.
type Verifier struct {
	Task    string // ID, for errors
	User    string // that runs the tests; "": the machine's
	Env     map[string]string
	Limit   time.Duration // of the tests
	Command []string      // that runs test.sh on the agent's machine
	Last    bool          // no later step needs the machine: all its processes end after the tests
	Log     event.Log
	// SetNetwork puts the verifier's network policy in force; it is called right before the tests.
	SetNetwork func(ctx context.Context) error
}

// Shared verifies on the agent's machine. If the machine responds but refuses to be verified, the
// agent has caused that and there is no reward.
func (v *Verifier) Shared(ctx context.Context, g *Guard) (benchmarks.Result, error) {
	i := &Inspection{Guard: g, rewards: true, owner: v.User}
	err := i.begin(ctx)
	if err == nil {
		err = v.SetNetwork(ctx)
	}
	var res benchmarks.Result
	if err == nil {
		res, err = v.run(ctx, v.Command, i)
	}
	if err != nil {
		if g.trace != nil || !agentsFault(ctx, g.sb, err) { // no agent was where a reference is made
			return res, err
		}
		why := refusal(err)
		if err := sandboxed.Note(ctx, v.Log, "verifier", why, testRun{Found: i.found.notes, Left: i.left}); err != nil {
			return res, err
		}
		res = NoReward(why)
	}
	return i.Apply(res), nil
}

// Separate verifies on a fresh machine, whose image brings the tests: it puts the artifacts where
// they came from, but for links that lead elsewhere. files are an evidence's.
func (v *Verifier) Separate(ctx context.Context, sb sandbox.Sandbox, files map[string]event.Blob,
	list []Artifact) (benchmarks.Result, error) {
	why, err := restore(ctx, sb, v.Log, files, list)
	if err != nil {
		return benchmarks.Result{}, err
	}
	if why != "" {
		return NoReward(why), nil
	}
	if _, err := EmptyDirs(ctx, sb, v.User, format.VerifierLogs); err != nil {
		return benchmarks.Result{}, err
	}
	if err := sandboxed.MakeOpen(ctx, sb, format.VerifierLogs); err != nil {
		return benchmarks.Result{}, err
	}
	if err := v.SetNetwork(ctx); err != nil {
		return benchmarks.Result{}, err
	}
	script := format.TestsDir + "/test.sh"
	// The image may hold it with the mode that it was checked out with.
	if _, err := sb.Exec(ctx, sandbox.Command{Args: []string{"chmod", "+x", script}, User: "root"}); err != nil {
		return benchmarks.Result{}, err
	}
	return v.run(ctx, []string{script}, &Inspection{Guard: &Guard{sb: sb}})
}

// run runs the tests and reads the reward.
func (v *Verifier) run(ctx context.Context, args []string, i *Inspection) (benchmarks.Result, error) {
	var out bytes.Buffer
	x, err := i.Exec(ctx, sandbox.Command{Args: args, User: v.User, Env: v.Env, Stdout: &out, Limit: maxStdout,
		FullLimit: -1, Timeout: v.Limit})
	if err != nil {
		return benchmarks.Result{}, err
	}
	if v.Last || !i.rewards { // so that nothing writes from here on
		if err := stopAll(ctx, i.sb); err != nil {
			return benchmarks.Result{}, err
		}
	}
	if i.rewards {
		if err := i.changes(ctx); err != nil {
			return benchmarks.Result{}, err
		}
	}
	res, err := v.reward(ctx, x, out.Bytes(), i)
	if err != nil {
		return res, err
	}
	return res, i.Remark(ctx, v.Log, "the verifier "+x.How(v.Limit)+": "+lastPart(out.Bytes()), x, out.Bytes())
}

func lastPart(out []byte) string {
	var t sandboxed.Tail
	t.Write(out)
	return t.String()
}

// jsonGains reports whether reward.json, which counts, says more than reward.txt: somebody who adds
// either file otherwise gains nothing.
func jsonGains(js, txt file) bool {
	if js.text == nil || txt.text == nil {
		return true
	}
	a, _, err := readRewards(js.text, nil)
	b, _, err2 := readRewards(nil, txt.text)
	if err != nil || err2 != nil {
		return true
	}
	x, y := (&benchmarks.Result{Scores: a}).Primary(), (&benchmarks.Result{Scores: b}).Primary()
	return *x.Value > *y.Value
}

// reward reads what the tests wrote, and makes the result.
func (v *Verifier) reward(ctx context.Context, x sandbox.Exit, out []byte, i *Inspection) (res benchmarks.Result,
	err error) {
	var files [3]file
	for n, f := range []struct {
		name string
		max  int64
	}{{"reward.json", maxReward}, {"reward.txt", maxReward}, {"ctrf.json", maxReport}} {
		if files[n], err = readFile(ctx, i.sb, format.VerifierLogs+"/"+f.name, f.max); err != nil {
			return res, err
		}
	}
	tests := readCTRF(files[2].text)
	if len(tests) == 0 {
		tests = readPytest(out)
	}
	scores, flags, err := scoresOf(files[0], files[1])
	if i.bothRewards && jsonGains(files[0], files[1]) {
		i.found.add(FlagRewritten, "reward.json and reward.txt were both written, and reward.json, which "+
			"counts, says more")
	}
	if i.foreign && x.Signal != "" && !x.TimedOut && err == nil {
		i.found.add(FlagForged, "there is a reward, and the verifier was ended by "+x.Signal+" beside other processes")
	}
	var bad *rewardError
	switch {
	case x.TimedOut:
		res = NoReward(fmt.Sprintf("%s: the verifier ran longer than %v", errTimeout, v.Limit), flags...)
		res.Primary().TimedOut = true
	case errors.As(err, &bad):
		why := bad.Error()
		if bad.Name == errNotFound || bad.Name == errEmpty {
			why += fmt.Sprintf("; test.sh %s: %s", x.How(v.Limit), lastPart(out))
		}
		res = NoReward(why, flags...)
	default:
		res = benchmarks.Result{Scores: scores, Flags: flags}
		if p := res.Primary(); p.Why == "" && (p.Value == nil || *p.Value < 1) {
			p.Why = score.Clip(failures(tests), 2500)
		}
	}
	res.Tests = tests
	return res, nil
}

// scoresOf reads the reward, after it has refused what is no regular file.
func scoresOf(js, txt file) ([]record.Score, []string, error) {
	for _, f := range []struct {
		name string
		file
	}{{"reward.json", js}, {"reward.txt", txt}} {
		if f.irregular != "" {
			return nil, []string{FlagNotRegular}, &rewardError{errParse, f.name + " is " + f.irregular}
		}
		if f.text != nil { // reward.json counts where it is there
			break
		}
	}
	return readRewards(js.text, txt.text)
}

// A file is what a machine has at a path.
type file struct {
	text      []byte // nil: no regular file
	irregular string // what is there instead
}

func (f file) exists() bool { return f.text != nil || f.irregular != "" }

func readFile(ctx context.Context, sb sandbox.Sandbox, name string, max int64) (file, error) {
	text, err := sandbox.ReadFile(ctx, sb, name, max)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return file{}, nil
	case errors.Is(err, sandbox.ErrTooLarge):
		return file{irregular: fmt.Sprintf("larger than %d MiB", max>>20)}, nil
	case errors.As(err, new(*sandbox.FileError)):
		return file{irregular: "not a regular file"}, nil
	case err != nil:
		return file{}, err
	case text == nil:
		text = []byte{}
	}
	return file{text: text}, nil
}
