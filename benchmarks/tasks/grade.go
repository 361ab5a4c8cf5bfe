package tasks

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing/fstest"
	"time"

	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/benchmarks/pygrade"
	"github.com/evalrun/evalrun/benchmarks/sandboxed"
	"github.com/evalrun/evalrun/benchmarks/score"
	"github.com/evalrun/evalrun/datasets"
	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// Default time limits for grading.
const (
	scriptTime   = time.Minute
	functionTime = 10 * time.Second
)

// Grade grades one stage.
func (b *Benchmark) Grade(ctx context.Context, h benchmarks.Host, t datasets.Task, ev benchmarks.Evidence,
	live benchmarks.Episode) (benchmarks.Result, error) {
	task, err := decode(t)
	if err != nil {
		return benchmarks.Result{}, err
	}
	if task.Browser != nil {
		return task.gradeBrowser(ev)
	}
	stages := task.stages()
	if ev.Stage < 0 || ev.Stage >= len(stages) {
		return benchmarks.Result{}, &benchmarks.TaskError{Task: t.ID,
			Err: fmt.Errorf("there is no stage %d", ev.Stage+1)}
	}
	g := stages[ev.Stage].Grade
	var d data
	if len(ev.Data) > 0 {
		if err := json.Unmarshal(ev.Data, &d); err != nil {
			return benchmarks.Result{}, err
		}
	}
	if d.Failed != "" {
		return verdict(0, "", d.Failed, benchmarks.FlagNoReward), nil
	}
	if len(g.Answer) > 0 {
		return answer(t, g, ev)
	}
	x := &grading{h: h, task: task, id: t.ID, dataset: t.Files, g: g, ev: ev}
	if g.Shared {
		m, ok := live.(benchmarks.Machiner)
		if !ok || m.Started() == nil {
			return benchmarks.Result{}, benchmarks.ErrNeedsLive
		}
		x.sb = m.Started()
		return x.script(ctx)
	}
	o, err := sandboxed.LoadOptions(d.Options)
	if err != nil {
		return benchmarks.Result{}, err
	}
	if g.Function != nil {
		return x.function(ctx, o)
	}
	if x.sb, err = h.Sandbox(ctx, task.grader(o)); err != nil {
		return benchmarks.Result{}, err
	}
	defer x.sb.Close()
	res, err := x.script(ctx)
	if d.Out != "" && err == nil {
		res.Flags = append(res.Flags, benchmarks.FlagLeftOut)
		if p := res.Primary(); p.Why == "" {
			p.Why = score.Clip("graded without a part of what the agent left behind: "+d.Out, 2500)
		}
	}
	return res, err
}

func verdict(v float64, text, why string, flags ...string) benchmarks.Result {
	return benchmarks.Result{
		Scores: []record.Score{{Name: "reward", Primary: true, Value: &v, Text: text, Why: score.Clip(why, 2500)}},
		Flags:  flags,
	}
}

func answer(t datasets.Task, g *Grade, ev benchmarks.Evidence) (benchmarks.Result, error) {
	grade, err := g.spec().Compile()
	if err != nil {
		return benchmarks.Result{}, &benchmarks.TaskError{Task: t.ID, Err: err}
	}
	text := ev.Answer.Text()
	if text == "" {
		return verdict(0, "", "no answer"), nil
	}
	m := grade(text)
	return verdict(m.Value, m.Text, m.Why), nil
}

// A grading holds the state of grading one stage.
type grading struct {
	h       benchmarks.Host
	task    *Task
	id      string
	dataset fs.FS
	g       *Grade
	ev      benchmarks.Evidence
	sb      sandbox.Sandbox
}

func (x *grading) blob(ctx context.Context, name string, max int64) ([]byte, error) {
	r, err := x.h.Log().OpenBlob(ctx, x.ev.Files[name])
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(io.LimitReader(r, max))
}

func (x *grading) function(ctx context.Context, o benchmarks.Options) (benchmarks.Result, error) {
	f := x.g.Function
	code := pygrade.Code(x.ev.Answer.Text(), f.Name)
	if _, ok := x.ev.Files[f.file()]; ok {
		raw, err := x.blob(ctx, f.file(), maxSource)
		if err != nil {
			return benchmarks.Result{}, err
		}
		code = string(raw)
	}
	if strings.TrimSpace(code) == "" {
		return verdict(0, "", fmt.Sprintf("there is no %s, and no answer", f.file())), nil
	}
	limit := time.Duration(x.g.Timeout)
	if limit == 0 {
		limit = functionTime
	}
	sb, err := x.h.Sandbox(ctx, x.task.grader(o))
	if err != nil {
		return benchmarks.Result{}, err
	}
	defer sb.Close()
	out, err := pygrade.Run(ctx, sb, pygrade.Program{Prompt: f.Prompt, Source: f.source(code), Entry: f.Name,
		Test: f.Check}, limit)
	switch {
	case err != nil:
		return benchmarks.Result{}, err
	case out.Task:
		return benchmarks.Result{}, &benchmarks.TaskError{Task: x.id, Err: errors.New(out.Why)}
	case out.Passed && out.Shared:
		return verdict(1, "", "", "not_apart"), nil
	case out.Passed:
		return verdict(1, "", ""), nil
	case out.NoVerdict:
		res := verdict(0, "", out.Why, benchmarks.FlagNoReward)
		res.Primary().TimedOut = out.TimedOut
		return res, nil
	}
	return verdict(0, "", out.Why), nil
}

// script grades with the task's script. Its exit status gives a score of 1 or 0; with partial, the
// number that it writes to the file $REWARD is the score.
func (x *grading) script(ctx context.Context) (benchmarks.Result, error) {
	names := sorted(x.ev.Files) // empty if the machine is shared
	roots := append(slices.Clone(names), x.task.dir())
	for _, name := range names {
		if slices.ContainsFunc(names, func(n string) bool { return n != name && sandboxed.Within(name, n) }) {
			continue // included in that directory
		}
		r, err := x.h.Log().OpenBlob(ctx, x.ev.Files[name])
		if err != nil {
			return benchmarks.Result{}, err
		}
		files, err := unpack(r, path.Dir(name), roots)
		r.Close()
		if err != nil {
			return benchmarks.Result{}, err
		}
		if err := benchmarks.Left(x.sb.Put(ctx, path.Dir(name), files)); err != nil {
			return benchmarks.Result{}, err
		}
	}
	// The directory has a new name each time and is created after the agent ended, so its content
	// is ours.
	eval := "/eval-" + strings.ToLower(rand.Text())
	hidden, err := tree(x.g.Files, x.dataset)
	if err != nil {
		return benchmarks.Result{}, &benchmarks.TaskError{Task: x.id, Err: err}
	}
	box := fstest.MapFS{"answer": {Data: []byte(x.ev.Answer.Text()), Mode: 0o600}, "files": {Mode: fs.ModeDir | 0o700}}
	if err := x.sb.Put(ctx, eval, box); err != nil {
		return benchmarks.Result{}, err
	}
	if err := x.sb.Put(ctx, eval+"/files", hidden); err != nil {
		return benchmarks.Result{}, err
	}
	reward := eval + "/reward"
	dir := x.task.dir()
	vars := []variable{{"EVAL", relative(dir, eval+"/files")}, {"ANSWER", relative(dir, eval+"/answer")}}
	if x.g.Partial {
		vars = append(vars, variable{"REWARD", relative(dir, reward)})
	}
	limit := time.Duration(x.g.Timeout)
	if limit == 0 {
		limit = scriptTime
	}
	exit, out, err := run(ctx, x.sb, x.g.Script, vars, dir, limit)
	if err != nil {
		return benchmarks.Result{}, err
	}
	out = strings.ReplaceAll(out, eval, "/eval") // so that grading again gives the same text
	switch {
	case exit.TimedOut || exit.OOM || exit.Signal != "" || exit.Code < 0:
		res := verdict(0, "", "the grade script "+exit.How(limit)+": "+out, benchmarks.FlagNoReward)
		res.Primary().TimedOut = exit.TimedOut
		return res, nil
	case x.g.Partial:
		return x.partial(ctx, reward, exit, out)
	case exit.Code == 126 || exit.Code == 127:
		return verdict(0, "", fmt.Sprintf("the grade script left with status %d, a command was not found: %s",
			exit.Code, out), benchmarks.FlagNoReward), nil
	case exit.Code != 0:
		return verdict(0, "", fmt.Sprintf("status %d: %s", exit.Code, out)), nil
	}
	return verdict(1, "", ""), nil
}

// partial reads the reward that the script has written.
func (x *grading) partial(ctx context.Context, name string, exit sandbox.Exit, out string) (benchmarks.Result, error) {
	raw, err := sandbox.ReadFile(ctx, x.sb, name, 4<<10)
	none := func(why string) (benchmarks.Result, error) {
		return verdict(0, "", fmt.Sprintf("%s; the grade script left with status %d: %s", why, exit.Code, out),
			benchmarks.FlagNoReward), nil
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return none("no reward was written")
	case errors.As(err, new(*sandbox.FileError)):
		return none("the reward is not a small file")
	case err != nil:
		return benchmarks.Result{}, err
	}
	text := string(bytes.TrimSpace(raw))
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(v) || v < 0 || v > 1 {
		return none(fmt.Sprintf("the reward %q is not one number from 0 to 1",
			score.Clip(strings.ToValidUTF8(text, "\ufffd"), 100)))
	}
	why := ""
	if v < 1 {
		why = out
	}
	return verdict(v, text, why), nil
}
