package terminalbench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"testing/fstest"
	"time"

	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/benchmarks/score"
	"github.com/evalrun/evalrun/datasets"
	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// maxOutput is how much of what the tests print is looked at: the first half and the last.
const maxOutput = 16 << 20

// Names of the scores.
const (
	scoreResolved = "is_resolved" // primary: 1 when there are tests and all of them passed
	scoreFraction = "passed"      // the part of the tests that passed
)

// Grade puts the tests into the agent's machine, runs them there and reads what they print.
func (b *Benchmark) Grade(ctx context.Context, h benchmarks.Host, dt datasets.Task, ev benchmarks.Evidence, live benchmarks.Episode) (benchmarks.Result, error) {
	t, err := of(dt)
	if err != nil {
		return benchmarks.Result{}, err
	}
	m, ok := live.(benchmarks.Machiner)
	if !ok || m.Started() == nil {
		return benchmarks.Result{}, benchmarks.ErrNeedsLive
	}
	var d data
	if len(ev.Data) > 0 {
		if err := json.Unmarshal(ev.Data, &d); err != nil {
			return benchmarks.Result{}, err
		}
	}
	x := &grading{task: t, sb: m.Started(), d: d, limit: b.o.testTime(t.TestTime)}
	return x.run(ctx, dt.Files)
}

type grading struct {
	task  *Task
	sb    sandbox.Sandbox
	d     data
	limit time.Duration // of all test scripts together
}

func (x *grading) run(ctx context.Context, files fs.FS) (benchmarks.Result, error) {
	if err := x.put(ctx, files); err != nil {
		return benchmarks.Result{}, err
	}
	out := &bytes.Buffer{}
	began := time.Now()
	for _, name := range x.task.TestScripts {
		c := sandbox.Command{
			Args: []string{"bash", "--noprofile", "--norc", testsDir + "/" + path.Base(name)}, User: "root",
			Env: map[string]string{"TERM": "xterm-256color"}, Stdout: out, Limit: maxOutput, FullLimit: -1,
			Timeout: x.limit - time.Since(began),
		}
		if x.task.SameShell {
			c.User, c.Dir = "", x.d.Where
		}
		if c.Timeout <= 0 {
			return x.timeout(), nil
		}
		exit, err := x.sb.Exec(ctx, c)
		if err != nil {
			return benchmarks.Result{}, err
		}
		if exit.TimedOut {
			return x.timeout(), nil
		}
	}
	return x.judge(out.String()), nil
}

// put puts what is in tests, and the scripts beside it, into /tests.
func (x *grading) put(ctx context.Context, files fs.FS) error {
	if tests, err := fs.Sub(files, "tests"); err == nil {
		if _, err := fs.Stat(tests, "."); err == nil {
			if err := x.sb.Put(ctx, testsDir, tests); err != nil {
				return err
			}
		}
	}
	scripts := fstest.MapFS{}
	for _, name := range x.task.TestScripts {
		text, err := readText(files, name)
		if err != nil {
			return &benchmarks.TaskError{Task: x.task.ID, Err: err}
		}
		scripts[path.Base(name)] = &fstest.MapFile{Data: unix(text), Mode: 0o755}
	}
	return x.sb.Put(ctx, testsDir, scripts)
}

func (x *grading) timeout() benchmarks.Result {
	return verdict(0, nil, fmt.Sprintf("test_timeout: the tests ran longer than %v", x.limit), benchmarks.FlagNoReward, FlagTimeout)
}

// judge reads the tests' output.
func (x *grading) judge(out string) benchmarks.Result {
	tests, flags, why, ok := parsers[x.task.Parser](out)
	if !ok {
		return verdict(0, nil, fmt.Sprintf("parse_error: %s; it ends: %s", why, ending(out)), benchmarks.FlagNoReward, FlagParse)
	}
	if x.task.Parser == "pytest" && len(headline.FindAllStringIndex(out, -1)) > 1+x.task.SummaryHeaders {
		flags = append(flags, FlagSummaries)
	}
	if len(tests) == 0 {
		return verdict(0, nil, "no test is named in the output; it ends: "+ending(out), append(flags, benchmarks.FlagNoReward, FlagNoTests)...)
	}
	if slices.ContainsFunc(tests, func(t record.Test) bool { return !passed(t) }) {
		return verdict(0, tests, failures(tests), flags...)
	}
	return verdict(1, tests, "", flags...)
}

// ending is the last part of an output, for a reason.
func ending(out string) string {
	out = strings.TrimSpace(clean(ansi.ReplaceAllString(out, "")))
	if len(out) > 1000 {
		out = "…" + strings.ToValidUTF8(out[len(out)-1000:], "")
	}
	return out
}

func verdict(v float64, tests []record.Test, why string, flags ...string) benchmarks.Result {
	r := benchmarks.Result{
		Scores: []record.Score{{Name: scoreResolved, Primary: true, Value: &v, Why: score.Clip(clean(why), 2500)}},
		Tests:  tests, Flags: flags,
	}
	if len(tests) > 0 {
		n := 0
		for _, t := range tests {
			if passed(t) {
				n++
			}
		}
		f := float64(n) / float64(len(tests))
		r.Scores = append(r.Scores, record.Score{Name: scoreFraction, Value: &f})
	}
	return r
}
