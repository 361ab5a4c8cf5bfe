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
	"github.com/evalrun/evalrun/datasets"
	"github.com/evalrun/evalrun/harness/launch"
	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/internal/suggest"
)

func (a *app) tasksCommand() *cli.Command {
	return &cli.Command{
		Name:  "tasks",
		Usage: "list, print and check a benchmark's tasks",
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
		Usage:     "list a benchmark's tasks",
		ArgsUsage: "BENCHMARK",
		Description: `Examples:
   evalrun tasks list quickstart
   evalrun tasks list qa:questions.jsonl --filter difficulty=hard --json`,
		Flags: append(o.selectFlags(),
			&cli.BoolFlag{Name: "json", Usage: "print one JSON object per line", Destination: &asJSON}),
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if _, err := one(cmd, "benchmark"); err != nil {
				return err
			}
			w := bufio.NewWriter(a.Stdout)
			if asJSON {
				enc := json.NewEncoder(w)
				err := a.eachTask(ctx, cmd.Args().Slice(), &o, func(t record.Task) error { return enc.Encode(t) })
				return errors.Join(err, w.Flush())
			}
			l := taskList{a: a, w: w}
			if err := a.eachTask(ctx, cmd.Args().Slice(), &o, l.add); err != nil {
				return errors.Join(err, l.flush())
			}
			return l.flush()
		},
	}
}

// A taskList prints tasks in columns. It buffers only a block of lines, so for many tasks the
// column widths depend on the tasks seen so far.
type taskList struct {
	a           *app
	w           *bufio.Writer
	tasks       []record.Task
	ids, digest int // column widths
}

func (l *taskList) add(t record.Task) error {
	if l.tasks = append(l.tasks, t); len(l.tasks) < 1000 {
		return nil
	}
	return l.flush()
}

func (l *taskList) flush() error {
	if len(l.tasks) == 0 {
		return l.w.Flush()
	}
	head := l.ids == 0
	l.ids, l.digest = max(l.ids, len("TASK")), max(l.digest, len("DIGEST"))
	for _, t := range l.tasks {
		l.ids, l.digest = max(l.ids, utf8.RuneCountInString(progress.Clean(t.ID))),
			max(l.digest, utf8.RuneCountInString(t.Digest))
	}
	if head {
		fmt.Fprintf(l.w, "%-*s  %-*s  TAGS\n", l.ids, "TASK", l.digest, "DIGEST")
	}
	for _, t := range l.tasks {
		note := strings.Join(t.Tags, ",")
		if t.Bad != "" {
			note = "cannot be read: " + strings.ReplaceAll(t.Bad, "\n", "; ")
		}
		fmt.Fprintf(l.w, "%-*s  %-*s  %s\n", l.ids, progress.Clean(t.ID), l.digest, t.Digest, progress.Clean(note))
	}
	for _, t := range l.tasks {
		for _, warning := range t.Warnings {
			fmt.Fprintf(l.a.Stderr, "%s: %s\n", progress.Clean(t.ID), progress.Clean(warning))
		}
	}
	l.tasks = l.tasks[:0]
	return l.w.Flush()
}

// eachTask calls each for every task of a benchmark. It plans the benchmark with the nop agent,
// which needs no configuration.
func (a *app) eachTask(ctx context.Context, args []string, o *configOptions, each func(record.Task) error) error {
	o.agents, o.models = []string{"nop"}, nil
	eff, err := a.configure(args, o)
	if err != nil {
		return err
	}
	var failed error // distinguishes an error of each from errors in the tasks
	err = launch.Tasks(ctx, a.Kinds, eff, func(t record.Task) error {
		failed = each(t)
		return failed
	})
	if err != nil && failed == nil {
		return &exitError{ExitUsage, err, ""}
	}
	return err
}

func (a *app) tasksShow() *cli.Command {
	var o configOptions
	return &cli.Command{
		Name:      "show",
		Usage:     "print a task as its benchmark reads it",
		ArgsUsage: "BENCHMARK TASK",
		Description: `Prints the task's data: instruction, limits and, if they are no folders of files, solution and grader. work lists the
paths that count as the agent's work (docs/grading.md).

Examples:
   evalrun tasks show quickstart roman
   evalrun tasks show humaneval:HumanEval.jsonl.gz HumanEval/3 | jq -r .data.prompt`,
		Flags: []cli.Flag{&cli.StringSliceFlag{Name: "set", Usage: "set `KEY=VALUE` of the configuration; repeatable",
			Destination: &o.set}},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if cmd.Args().Len() != 2 {
				return usage("see evalrun tasks show --help", "evalrun tasks show needs a benchmark and a task")
			}
			o.agents = []string{"nop"}
			eff, err := a.configure(cmd.Args().Slice()[:1], &o)
			if err != nil {
				return err
			}
			b, err := launch.OpenBenchmark(a.Kinds, eff.Benchmarks[0])
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
			work, err := launch.Work(b, t)
			if err != nil {
				a.say("the agent's work is not known: %s", progress.Clean(err.Error()))
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
				Work      []record.WorkPath `json:"work,omitempty"`
				Data      json.RawMessage   `json:"data,omitempty"`
			}{b.Name(), t.ID, t.Digest, t.Cluster, t.Tags, t.Fields, work, readable(t.Data)})
		},
	}
}

var escapes = regexp.MustCompile(`\\(u003c|u003e|u0026|.)`)

// readable removes the escapes for <, > and & from JSON.
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
	var ids []string
	if err := a.eachTask(ctx, []string{bench}, &configOptions{},
		func(t record.Task) error { ids = append(ids, t.ID); return nil }); err == nil {
		if meant := suggest.Names(id, ids); meant != nil {
			hint = fmt.Sprintf("did you mean %q?", meant[0])
		}
	}
	return usage(hint, "benchmark %s has no task %q", bench, id)
}
