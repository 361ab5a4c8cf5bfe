package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"text/tabwriter"

	"github.com/urfave/cli/v3"

	"github.com/evalrun/evalrun/cmd/evalrun/internal/config"
	"github.com/evalrun/evalrun/cmd/evalrun/internal/progress"
	"github.com/evalrun/evalrun/cmd/evalrun/internal/wire"
	"github.com/evalrun/evalrun/datasets"
	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/harness/rundir"
)

func (a *app) tasksCommand() *cli.Command {
	return &cli.Command{
		Name:  "tasks",
		Usage: "look at a benchmark's tasks, and check that they are sound",
		Description: `Examples:
   evalrun tasks list quickstart
   evalrun tasks show humaneval:HumanEval.jsonl.gz HumanEval/3
   evalrun tasks check tasks:mine/tasks.yaml`,
		Commands: []*cli.Command{a.tasksList(), a.tasksShow(), a.tasksCheck()},
	}
}

func (a *app) tasksList() *cli.Command {
	var o configOptions
	var asJSON bool
	return &cli.Command{
		Name:      "list",
		Usage:     "list the tasks that a selection leaves",
		ArgsUsage: "BENCHMARK",
		Description: `Takes the selecting flags of run: --ids, --tag, --filter, --sample, --limit, --shard.

Examples:
   evalrun tasks list quickstart
   evalrun tasks list qa:questions.jsonl --filter difficulty=hard --json`,
		Flags: append(o.flags(), &cli.BoolFlag{Name: "json", Usage: "a JSON object a line", Destination: &asJSON}),
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if _, err := one(cmd, "benchmark"); err != nil {
				return err
			}
			p, err := a.planOf(ctx, cmd.Args().Slice(), &o)
			if err != nil {
				return err
			}
			if asJSON {
				enc := json.NewEncoder(a.Stdout)
				for _, t := range p.Tasks {
					if err := enc.Encode(t); err != nil {
						return err
					}
				}
				return nil
			}
			w := tabwriter.NewWriter(a.Stdout, 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "TASK\tDIGEST\tTAGS")
			for _, t := range p.Tasks {
				note := strings.Join(t.Tags, ",")
				if t.Bad != "" {
					note = "cannot be read: " + t.Bad
				}
				fmt.Fprintf(w, "%s\t%s\t%s\n", progress.Clean(t.ID), t.Digest, progress.Clean(note))
			}
			for _, t := range p.Tasks {
				for _, warning := range t.Warnings {
					fmt.Fprintf(a.Stderr, "%s: %s\n", progress.Clean(t.ID), progress.Clean(warning))
				}
			}
			return w.Flush()
		},
	}
}

// planOf plans a benchmark with the agent that needs nothing.
func (a *app) planOf(ctx context.Context, args []string, o *configOptions) (*record.Plan, error) {
	o.agents, o.models = []string{"nop"}, nil
	eff, err := a.configure(args, o)
	if err != nil {
		return nil, err
	}
	p, err := wire.Tasks(ctx, eff)
	if err != nil {
		return nil, &exitError{ExitUsage, err, ""}
	}
	return p, nil
}

func (a *app) tasksShow() *cli.Command {
	var o configOptions
	return &cli.Command{
		Name:      "show",
		Usage:     "print one task as its benchmark reads it, solution and grader included",
		ArgsUsage: "BENCHMARK TASK",
		Description: `Examples:
   evalrun tasks show quickstart fizzbuzz
   evalrun tasks show humaneval:HumanEval.jsonl.gz HumanEval/3 | jq -r .data.prompt`,
		Flags: []cli.Flag{&cli.StringSliceFlag{Name: "set", Usage: "`KEY=VALUE` of the configuration", Destination: &o.set}},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if cmd.Args().Len() != 2 {
				return usage("see evalrun tasks show --help", "evalrun tasks show needs a benchmark and a task")
			}
			o.agents = []string{"nop"}
			eff, err := a.configure(cmd.Args().Slice()[:1], &o)
			if err != nil {
				return err
			}
			b, err := wire.OpenBenchmark(eff.Benchmarks[0])
			if err != nil {
				return &exitError{ExitUsage, err, ""}
			}
			id := cmd.Args().Get(1)
			t, err := b.Source().Task(ctx, id)
			if errors.Is(err, datasets.ErrNoTask) {
				return a.noTask(ctx, cmd.Args().First(), id)
			}
			if err != nil {
				return &exitError{ExitUsage, err, ""}
			}
			enc := json.NewEncoder(a.Stdout)
			enc.SetEscapeHTML(false)
			enc.SetIndent("", "  ")
			return enc.Encode(struct {
				Benchmark string            `json:"benchmark"`
				ID        string            `json:"id"`
				Digest    string            `json:"digest,omitempty"`
				Cluster   string            `json:"cluster,omitempty"`
				Tags      []string          `json:"tags,omitempty"`
				Fields    map[string]string `json:"fields,omitempty"`
				Data      json.RawMessage   `json:"data,omitempty"`
			}{b.Name(), t.ID, t.Digest, t.Cluster, t.Tags, t.Fields, readable(t.Data)})
		},
	}
}

var escapes = regexp.MustCompile(`\\(u003c|u003e|u0026|.)`)

// readable is JSON without the escapes that Go makes of <, > and &.
func readable(raw json.RawMessage) json.RawMessage {
	plain := map[string]string{`\u003c`: "<", `\u003e`: ">", `\u0026`: "&"}
	return escapes.ReplaceAllFunc(raw, func(b []byte) []byte {
		if s, ok := plain[string(b)]; ok {
			return []byte(s)
		}
		return b
	})
}

func (a *app) noTask(ctx context.Context, bench, id string) error {
	hint := "see evalrun tasks list " + bench
	if p, err := a.planOf(ctx, []string{bench}, &configOptions{}); err == nil {
		var ids []string
		for _, t := range p.Tasks {
			ids = append(ids, t.ID)
		}
		if near := config.Near(id, ids); near != nil {
			hint = fmt.Sprintf("did you mean %q?", near[0])
		}
	}
	return usage(hint, "benchmark %s has no task %q", bench, id)
}

func (a *app) tasksCheck() *cli.Command {
	var o configOptions
	var p playOptions
	var out string
	return &cli.Command{
		Name:      "check",
		Usage:     "check that the known solutions earn the full score and doing nothing does not",
		ArgsUsage: "BENCHMARK",
		Description: `Runs oracle and nop over the tasks. A task whose oracle scores below 1, or whose nop scores 1, is named, and the exit code is 4.
With --out the run folder is kept; else only what failed is.

Examples:
   evalrun tasks check quickstart
   evalrun tasks check tasks:mine/tasks.yaml --ids 'new-*' -o check`,
		Flags: append(append(o.flags(), p.flags()...), &cli.StringFlag{Name: "out", Aliases: []string{"o"}, Usage: "run `FOLDER` that is kept", Destination: &out}),
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if _, err := one(cmd, "benchmark"); err != nil {
				return err
			}
			if len(o.agents)+len(o.models) > 0 {
				return usage("to run other agents use evalrun run", "tasks check runs oracle and nop; it takes no --agent and no --model")
			}
			return a.check(ctx, cmd.Args().Slice(), &o, &p, out)
		},
	}
}

func (a *app) check(ctx context.Context, args []string, o *configOptions, p *playOptions, out string) (err error) {
	if err := a.checkPlay(p); err != nil {
		return err
	}
	o.agents = []string{"oracle", "nop"}
	eff, err := a.configure(args, o)
	if err != nil {
		return err
	}
	ready, err := wire.Prepare(ctx, eff, nil, a.options())
	if err != nil {
		return &exitError{ExitUsage, err, ""}
	}
	defer closing(ready, &err)
	keep := out != ""
	if !keep {
		tmp, err := os.MkdirTemp("", "evalrun-check-")
		if err != nil {
			return err
		}
		out = tmp
	}
	d, err := rundir.Create(out, ready.Plan)
	if err != nil {
		return folderError(err)
	}
	defer func() {
		closing(d, &err)
		if !keep && err == nil {
			err = os.RemoveAll(out)
		}
	}()
	outcome, err := a.begin(ctx, ready, d, p, nil)
	if err != nil {
		return err
	}
	if outcome.Reason != "done" {
		return &exitError{ExitStopped, errors.New("the check was stopped"), "go on with: evalrun resume " + rel(out)}
	}
	res, err := wire.Check(d)
	if err != nil {
		return err
	}
	if p.json {
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
	if len(res.Problems) > 0 {
		return &exitError{ExitGate, nil, ""}
	}
	return nil
}

func (a *app) printCheck(r wire.CheckResult) {
	var b bytes.Buffer
	for _, p := range r.Problems {
		fmt.Fprintf(&b, "%s: %s\n", progress.Clean(p.Task), progress.Clean(p.What))
	}
	fmt.Fprintf(&b, "oracle: %d of %d tasks at full score; nop: %d of %d\n", r.Oracle, r.Tasks, r.Nop, r.Tasks)
	switch n := len(r.Problems); {
	case n == 0:
		fmt.Fprintln(&b, "sound")
	default:
		fmt.Fprintf(&b, "%d problems; look at one with: evalrun show %s --trial ID\n", n, rel(r.Run))
	}
	a.Stdout.Write(b.Bytes())
}
