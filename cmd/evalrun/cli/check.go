package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/urfave/cli/v3"

	"github.com/evalrun/evalrun/cmd/evalrun/internal/progress"
	"github.com/evalrun/evalrun/harness/launch"
	"github.com/evalrun/evalrun/harness/rundir"
	"github.com/evalrun/evalrun/harness/taskcheck"
)

type checkOptions struct {
	configOptions
	playOptions
	out   string
	times int
}

func (a *app) tasksCheck() *cli.Command {
	var o checkOptions
	return &cli.Command{
		Name:      "check",
		Usage:     "check that the known solution of each task scores 1 and that doing nothing scores 0",
		ArgsUsage: "PATH | BENCHMARK",
		Description: `Runs each task with oracle and nop and lists the tasks that are unsound, with the reason: no test, build fails, oracle
below 1, nop above 0, no reward, time-out, page fails, set-up fails, flaky (different results with --times 2 or more),
cannot be read. Tasks that cannot run on this machine are listed as skipped. The exit code is 4 if a task is unsound or
no task could be checked.

PATH is a task or a folder of tasks: Harbor (task.toml, dataset.toml, registry.json), Terminal-Bench (task.yaml) or your
own (tasks.yaml). The run folder is deleted if the check finds nothing, unless --out names one.

Examples:
   evalrun tasks check quickstart
   evalrun tasks check ~/terminal-bench-2/tasks --times 2 -n 4
   evalrun tasks check mine/tasks.yaml --ids 'new-*' -o check`,
		Flags: append(slices.Concat(o.playFlags(a.reg), o.selectFlags(), o.playOptions.flags()),
			&cli.IntFlag{Name: "times", Usage: "run each task `N` times and compare the results", Value: 1,
				Destination: &o.times},
			o.checksFlag("add what the check finds out for second opinions to `FILE`, for run and resume (docs/grading.md)"),
			&cli.StringFlag{Name: "out", Aliases: []string{"o"}, Usage: "`FOLDER` for the run, which is kept",
				Destination: &o.out}),
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if _, err := one(cmd, "benchmark, or path of tasks"); err != nil {
				return err
			}
			if o.times < 1 {
				return usage("", "--times %d: each task is played at least once", o.times)
			}
			o.repeats = fmt.Sprint(o.times)
			return a.check(ctx, cmd.Args().Slice(), &o)
		},
	}
}

func (a *app) check(ctx context.Context, args []string, o *checkOptions) (err error) {
	if err := a.checkPlay(&o.playOptions); err != nil {
		return err
	}
	checks, err := o.openChecks(true)
	if err != nil {
		return err
	}
	o.agents = []string{"oracle", "nop"}
	// A series of broken tasks must not pause the check, because they are independent of each
	// other.
	o.set = append([]string{"retries.pause_after=1000000"}, o.set...)
	eff, err := a.configure(args, &o.configOptions)
	if err != nil {
		return err
	}
	ready, err := launch.Prepare(ctx, eff, nil, a.options())
	if err != nil {
		return &exitError{ExitUsage, err, ""}
	}
	defer closing(ready, &err)
	for _, n := range ready.Notes {
		a.say("note: %s", progress.Clean(n))
	}
	out, keep := o.out, o.out != ""
	if !keep {
		if out, err = os.MkdirTemp("", "evalrun-check-"); err != nil {
			return err
		}
	}
	d, err := rundir.Create(out, ready.Plan)
	if errors.Is(err, rundir.ErrExists) {
		d, err = a.sameCheck(out, ready)
	}
	if err != nil {
		return folderError(err)
	}
	defer func() {
		closing(d, &err)
		if !keep && err == nil {
			err = os.RemoveAll(out)
		}
	}()
	outcome, err := a.begin(ctx, ready, d, &o.playOptions, launch.Control{Checks: checks})
	if err == nil {
		err = checks.Save()
	}
	if err != nil {
		return err
	}
	if outcome.Reason != "done" {
		hint := "go on with: evalrun resume " + rel(out)
		if keep {
			hint = "go on with the same command: what is decided is not done again"
		}
		return &exitError{ExitStopped, errors.New("the check was stopped"), hint}
	}
	res, err := taskcheck.Judge(d)
	if err != nil {
		return err
	}
	if o.json {
		b, err := json.MarshalIndent(res, "", "  ")
		if err != nil {
			return err
		}
		if _, err := a.Stdout.Write(append(b, '\n')); err != nil {
			return err
		}
	} else {
		a.printCheck(res)
	}
	if res.Unsound > 0 || res.Sound == 0 {
		return &exitError{ExitGate, nil, ""}
	}
	return nil
}

// sameCheck opens the directory of an interrupted check, if it is of the same tasks.
func (a *app) sameCheck(out string, ready *launch.Ready) (*rundir.Dir, error) {
	d, err := launch.Open(out)
	if err != nil {
		return nil, err
	}
	old, now := d.Plan(), ready.Plan
	same := len(old.Tasks) == len(now.Tasks) && len(old.Arms) == len(now.Arms) && old.Repeats == now.Repeats
	for i := range old.Tasks {
		same = same && old.Tasks[i].Digest == now.Tasks[i].Digest
	}
	for i := range old.Arms {
		same = same && old.Arms[i].ID == now.Arms[i].ID
	}
	if !same {
		d.Close()
		return nil, usage("name another folder by -o",
			"%s holds a run of other tasks, or of the same ones as they were", out)
	}
	ready.Plan = old
	return d, nil
}

func (a *app) printCheck(r taskcheck.Result) {
	var b bytes.Buffer
	color := func(code, s string) string {
		if !a.color || !a.OutTTY {
			return s
		}
		return "\x1b[" + code + "m" + s + "\x1b[0m"
	}
	if len(r.Problems) > 0 {
		w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "TASK\tWHAT\tWHY")
		for _, p := range r.Problems {
			fmt.Fprintf(w, "%s\t%s\t%s\n", progress.Clean(p.Task), p.Kind, brief(p.What))
		}
		w.Flush()
		fmt.Fprintln(&b)
	}
	for _, n := range r.Notes {
		fmt.Fprintf(&b, "note: %s: %s\n", progress.Clean(n.Of()), progress.Cut(progress.Clean(n.Text), 1000))
	}
	if len(r.Notes) > 0 {
		fmt.Fprintln(&b)
	}
	if len(r.Work) > 0 {
		w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "TASK\tTHE AGENT'S WORK\tFROM")
		for _, x := range r.Work {
			fmt.Fprintf(w, "%s\t%s\t%s\n", progress.Clean(x.Task), progress.Clean(x.Path), progress.Clean(x.From))
		}
		w.Flush()
		fmt.Fprintln(&b)
	}
	times := ""
	if r.Times > 1 {
		times = fmt.Sprintf(", %d times the same", r.Times)
	}
	skipped := ""
	if r.Skipped > 0 {
		skipped = fmt.Sprintf("; %d cannot run here and were not checked", r.Skipped)
	}
	switch {
	case r.Unsound > 0:
		fmt.Fprintf(&b, "%s: %d of %d tasks are not sound, %d are%s\n", color("31", "unsound"), r.Unsound, r.Tasks,
			r.Sound, skipped)
	case r.Sound == 0:
		fmt.Fprintf(&b, "%s: none of %d tasks could be checked here\n", color("31", "nothing checked"), r.Tasks)
	default:
		fmt.Fprintf(&b, "%s: %d of %d tasks: the oracle earns the full score, doing nothing earns none%s%s\n",
			color("32", "sound"), r.Sound, r.Tasks, times, skipped)
	}
	if r.Unsound > 0 {
		for _, p := range r.Problems {
			if p.Kind != taskcheck.Skipped {
				fmt.Fprintf(&b, "look at one with: evalrun show %s --trial %s\n", rel(r.Run), p.Trial)
				break
			}
		}
	}
	a.Stdout.Write(b.Bytes())
}

// brief shortens a reason to one line: its first line, and its last if there are more, because
// programs report the error there.
func brief(s string) string {
	lines := strings.FieldsFunc(s, func(r rune) bool { return r == '\n' })
	var kept []string
	for _, l := range lines {
		if l = strings.TrimSpace(l); l != "" {
			kept = append(kept, l)
		}
	}
	if len(kept) == 0 {
		return ""
	}
	text := progress.Cut(kept[0], 140)
	if n := len(kept); n > 1 {
		text += " … " + progress.Cut(kept[n-1], 100)
	}
	return progress.Clean(text)
}

func isFolder(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.IsDir()
}

// recognised replaces arguments that are paths of tasks with the benchmark that recognizes them.
// Other arguments stay unchanged. A directory may have the same name as a benchmark that requires a
// path, such as tasks.
func (a *app) recognised(args []string) ([]string, error) {
	var out []string
	for _, arg := range args {
		name, _, given := strings.Cut(arg, ":")
		if k := a.reg.Benchmark(name); k != nil && (given || k.Arg == "" || !isFolder(arg)) {
			out = append(out, arg)
			continue
		}
		kinds, err := launch.Recognise(a.Kinds, arg)
		switch {
		// a configuration file, or a word for which an error is reported later
		case errors.Is(err, os.ErrNotExist), errors.Is(err, launch.ErrNoTasks) && !isFolder(arg):
			out = append(out, arg)
		case err != nil:
			return nil, usage("name the format, as in harbor:"+arg, "%s: %w", arg, err)
		default:
			out = append(out, kinds...)
		}
	}
	return out, nil
}
