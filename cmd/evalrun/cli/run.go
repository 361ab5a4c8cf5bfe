package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/evalrun/evalrun/cmd/evalrun/internal/progress"
	"github.com/evalrun/evalrun/harness/journal"
	"github.com/evalrun/evalrun/harness/launch"
	"github.com/evalrun/evalrun/harness/plan"
	"github.com/evalrun/evalrun/harness/rundir"
	"github.com/evalrun/evalrun/internal/suggest"
)

// playOptions are the options shared by run, resume and rerun.
type playOptions struct {
	progress   string
	json       bool
	acceptLoss bool // used by resume only
	checks     string
}

// checksFlag is the flag of commands that ask for second opinions.
func (o *playOptions) checksFlag(usage string) cli.Flag {
	return &cli.StringFlag{Name: "checks", Usage: usage, TakesFile: true, Destination: &o.checks}
}

// checksUsed is the usage of the flag where checks are read.
const checksUsed = "use what evalrun tasks check --checks `FILE` knows of the tasks (docs/grading.md)"

// openChecks opens the file of the flag; nil: it was not given.
func (o *playOptions) openChecks(write bool) (*launch.Checks, error) {
	if o.checks == "" {
		return nil, nil
	}
	c, err := launch.OpenChecks(o.checks, write)
	if err != nil {
		hint := "evalrun tasks check --checks FILE writes such a file"
		if write {
			hint = ""
		}
		return nil, &exitError{ExitUsage, err, hint}
	}
	return c, nil
}

func (o *playOptions) flags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "progress", Usage: "progress `MODE`: " + strings.Join(progress.Modes, ", "),
			Value: progress.Auto, Destination: &o.progress},
		&cli.BoolFlag{Name: "json", Usage: "print the summary as JSON", Destination: &o.json},
	}
}

func (a *app) checkPlay(o *playOptions) error {
	if o.progress == progress.JSON { // print nothing but JSON lines
		a.json, a.lines = true, true
		a.log = slog.New(slog.NewJSONHandler(a.Stderr, &slog.HandlerOptions{Level: a.level})).With("type", "log")
	}
	if !slices.Contains(progress.Modes, o.progress) {
		hint := "modes: " + strings.Join(progress.Modes, ", ")
		if meant := suggest.Names(o.progress, progress.Modes); meant != nil {
			hint = fmt.Sprintf("did you mean %q?", meant[0])
		}
		return usage(hint, "--progress %q is unknown", o.progress)
	}
	return nil
}

type runOptions struct {
	configOptions
	playOptions
	out    string
	dryRun bool
}

func (a *app) runCommand() *cli.Command {
	var o runOptions
	return &cli.Command{
		Name:      "run",
		Usage:     "run a benchmark or a configuration",
		ArgsUsage: "FILE.yaml | BENCHMARK…",
		Description: `Without --agent and --model, evalrun runs two agents: oracle, which gives the known solutions, and nop, which does
nothing. Together they show that the benchmark works on this machine. With --model alone, the agent is codeact.

Benchmarks: ` + wrapped(a.reg.Benchmarks) + `

Examples:
   evalrun run quickstart
   evalrun run humaneval:HumanEval.jsonl.gz --agent oracle --agent nop -n 8 -o out
   evalrun run qa:questions.jsonl -m openai/gpt-4o-mini --sample 50 --seed 1 --filter difficulty=hard
   evalrun run quickstart -m openai/qwen3 --base-url http://localhost:8000/v1 --repeats 3
   evalrun run harbor:tasks --tag python -n 4
   evalrun run nightly.yaml --workers 16 --dry-run`,
		Flags: append(append([]cli.Flag{
			&cli.StringFlag{Name: "out", Aliases: []string{"o"},
				Usage:       "`FOLDER` for the results (default: runs/TIME-NAME)",
				Destination: &o.out},
			&cli.BoolFlag{Name: "dry-run",
				Usage:       "print the trials, limits and maximum cost; run nothing",
				Destination: &o.dryRun},
			o.checksFlag(checksUsed),
		}, o.configOptions.flags(a.reg)...), o.playOptions.flags()...),
		Action: func(ctx context.Context, cmd *cli.Command) error { return a.run(ctx, cmd.Args().Slice(), &o) },
	}
}

func (a *app) run(ctx context.Context, args []string, o *runOptions) (err error) {
	if err := a.checkPlay(&o.playOptions); err != nil {
		return err
	}
	checks, err := o.openChecks(false)
	if err != nil {
		return err
	}
	eff, err := a.configure(args, &o.configOptions)
	if err != nil {
		return err
	}
	opts := a.options()
	opts.Dry = o.dryRun
	ready, err := launch.Prepare(ctx, eff, nil, opts)
	if err != nil {
		return &exitError{ExitUsage, err, ""}
	}
	defer closing(ready, &err)
	if o.dryRun {
		return a.describe(ready, o.json)
	}
	for _, n := range ready.Notes {
		a.say("note: %s", progress.Clean(n))
	}
	var d *rundir.Dir
	if o.out != "" {
		d, err = rundir.Create(o.out, ready.Plan)
	} else {
		d, err = rundir.New("runs", ready.Plan)
	}
	if err != nil {
		return newFolderError(err)
	}
	defer closing(d, &err)
	return a.play(ctx, ready, d, &o.playOptions, launch.Control{Checks: checks})
}

func (a *app) options() launch.Options {
	return launch.Options{Kinds: a.Kinds, Env: a.Env, Version: a.Version, Log: a.log, Making: a.progress.making}
}

// play runs the remaining trials of a plan and reports the result.
func (a *app) play(ctx context.Context, ready *launch.Ready, d *rundir.Dir, o *playOptions, c launch.Control) error {
	out, err := a.begin(ctx, ready, d, o, c)
	if err != nil {
		return err
	}
	return a.conclude(ready, d, out, o)
}

// begin runs the remaining trials of a plan that c selects.
func (a *app) begin(ctx context.Context, ready *launch.Ready, d *rundir.Dir, o *playOptions,
	c launch.Control) (launch.Outcome, error) {
	a.header(ready, d)
	p := a.progress
	p.waiting, p.finishing = ready.Waiting, ready.Finishing
	stop := a.stopper(ctx, p)
	defer stop.close()
	c.Drain, c.Observe, c.Earlier = stop.drain, p.observe, p.earlier
	c.Begun = func(decided int) {
		all := plan.Trials(ready.Plan)
		if decided > 0 {
			a.say("%d of %d trials are left", all-decided, all)
		}
		p.shows(o.progress, "trials", all, decided)
	}
	out, err := ready.Run(stop.ctx, d, c)
	p.close()
	if changed := new(launch.ChangedError); errors.As(err, &changed) {
		if c.Again != nil {
			return out, usage("put their content back, or pick other trials", "%w", err)
		}
		return out, usage("put their content back, or play the others with: evalrun resume "+rel(d.Path())+
			" --leave-changed", "%w", err)
	}
	if errors.Is(err, journal.ErrNewer) || errors.Is(err, rundir.ErrReadOnly) {
		return out, &exitError{ExitUsage, err, ""}
	}
	if lost(err) {
		return out, lossError(err, rel(d.Path()))
	}
	if err != nil {
		return out, &exitError{ExitInternal, err,
			"what is in " + rel(d.Path()) + " is kept; go on with: evalrun resume " + rel(d.Path())}
	}
	return out, nil
}

// header describes the run that starts, and limits that are not obvious.
func (a *app) header(r *launch.Ready, d *rundir.Dir) {
	limits := r.Limits()
	a.notify("begin", map[string]any{"run": r.Plan.Run, "path": rel(d.Path()), "arms": len(r.Plan.Arms),
		"tasks":   len(r.Plan.Tasks),
		"repeats": r.Plan.Repeats, "trials": plan.Trials(r.Plan), "limits": limits}, "%s in %s", r.Trials(),
		rel(d.Path()))
	if a.lines {
		return
	}
	var parts []string
	for _, l := range limits {
		switch {
		case l.Name == "workers", l.Name == "sandbox", l.Name == "machines at once",
			l.Name == "network" && l.Value != "none",
			// limits that are enforced in an unexpected way
			strings.HasSuffix(l.Name, " limit") && (r.Sandbox == "local" || strings.HasPrefix(l.Name, "local ")):
			s := l.Name + " " + l.Value
			if what, ok := strings.CutSuffix(l.Name, " limit"); ok {
				s = what + ": " + l.Value
			}
			if (l.Name == "sandbox" || l.Name == "workers" && strings.Contains(l.Why, ";")) && l.Why != "" {
				s += " (" + l.Why + ")"
			}
			parts = append(parts, s)
		}
	}
	a.say("%s", strings.Join(parts, ", "))
}

// rel returns a path as a user would type it.
func rel(path string) string {
	wd, err := filepath.Abs(".")
	if err != nil {
		return path
	}
	if r, err := filepath.Rel(wd, path); err == nil && !strings.HasPrefix(r, "..") {
		return r
	}
	return path
}

// newFolderError converts the error of creating a run directory to a usage error: nothing was run,
// and another path may work.
func newFolderError(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) && !errors.Is(err, rundir.ErrExists) {
		return usage("name a folder where you may write: -o FOLDER", "the run folder cannot be made: %w", p)
	}
	return folderError(err)
}

func folderError(err error) error {
	switch {
	case errors.Is(err, rundir.ErrNotARun), errors.Is(err, rundir.ErrNewer), errors.Is(err, rundir.ErrReadOnly),
		errors.Is(err, rundir.ErrInUse), errors.Is(err, rundir.ErrExists):
		return &exitError{ExitUsage, err, ""}
	}
	return err
}

func closing(c io.Closer, err *error) {
	if e := c.Close(); e != nil && *err == nil {
		*err = e
	}
}
