package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/urfave/cli/v3"

	"github.com/evalrun/evalrun/cmd/evalrun/internal/progress"
	"github.com/evalrun/evalrun/cmd/evalrun/internal/wire"
	"github.com/evalrun/evalrun/datasets"
	"github.com/evalrun/evalrun/datasets/near"
	"github.com/evalrun/evalrun/harness/record"
)

func (a *app) tasksCommand() *cli.Command {
	return &cli.Command{
		Name:  "tasks",
		Usage: "look at a benchmark's tasks, and check that they are sound",
		Description: `Examples:
   evalrun tasks list quickstart
   evalrun tasks show humaneval:HumanEval.jsonl.gz HumanEval/3
   evalrun tasks check tasks:mine/tasks.yaml`,
		Commands: []*cli.Command{a.tasksList(), a.tasksShow(), a.tasksCheck(), a.tasksFetch()},
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
				w := bufio.NewWriter(a.Stdout)
				enc := json.NewEncoder(w)
				for _, t := range p.Tasks {
					if err := enc.Encode(t); err != nil {
						return err
					}
				}
				return w.Flush()
			}
			w := bufio.NewWriter(a.Stdout)
			ids, digests := len("TASK"), len("DIGEST") // widths; a tabwriter would hold all cells of a long list
			for _, t := range p.Tasks {
				ids, digests = max(ids, utf8.RuneCountInString(progress.Clean(t.ID))), max(digests, utf8.RuneCountInString(t.Digest))
			}
			fmt.Fprintf(w, "%-*s  %-*s  TAGS\n", ids, "TASK", digests, "DIGEST")
			for _, t := range p.Tasks {
				note := strings.Join(t.Tags, ",")
				if t.Bad != "" {
					note = "cannot be read: " + strings.ReplaceAll(t.Bad, "\n", "; ")
				}
				fmt.Fprintf(w, "%-*s  %-*s  %s\n", ids, progress.Clean(t.ID), digests, t.Digest, progress.Clean(note))
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
   evalrun tasks show quickstart roman
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
		if meant := near.Names(id, ids); meant != nil {
			hint = fmt.Sprintf("did you mean %q?", meant[0])
		}
	}
	return usage(hint, "benchmark %s has no task %q", bench, id)
}
