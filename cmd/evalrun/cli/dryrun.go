package cli

import (
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/evalrun/evalrun/cmd/evalrun/internal/progress"
	"github.com/evalrun/evalrun/harness/config"
	"github.com/evalrun/evalrun/harness/launch"
)

// describe prints a dry run.
func (a *app) describe(r *launch.Ready, asJSON bool) error {
	cost := r.Cost()
	if asJSON {
		b, err := json.MarshalIndent(map[string]any{"arms": r.Plan.Arms, "benchmarks": r.Plan.Benchmarks,
			"tasks":  len(r.Plan.Tasks),
			"limits": r.Limits(), "models": r.Endpoints(), "cost": cost, "notes": r.Notes}, "", "  ")
		if err != nil {
			return err
		}
		_, err = a.Stdout.Write(append(b, '\n'))
		return err
	}
	w := a.Stdout
	fmt.Fprintf(w, "would run %s\n\n", r.Trials())
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "ARM\tAGENT\tMODEL\tPROMPT\tLIMITS")
	for i, arm := range r.Plan.Arms {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", arm.Name, arm.Agent, dash(arm.Model), dash(arm.Prompt),
			limits(r.Eff.Arms[i].Limits))
	}
	t.Flush()
	fmt.Fprintln(w)
	for _, b := range r.Plan.Benchmarks {
		n, bad := 0, 0
		for _, task := range r.Plan.Tasks {
			if task.Benchmark == b.Name {
				n++
				if task.Bad != "" {
					bad++
				}
			}
		}
		note := ""
		if bad > 0 {
			note = fmt.Sprintf(", %d of them cannot be read and will be skipped", bad)
		}
		fmt.Fprintf(w, "benchmark %s: %d %s%s (digest %s)\n", progress.Clean(b.Spec), n,
			map[bool]string{true: "task", false: "tasks"}[n == 1], note, b.Digest)
	}
	for _, e := range r.Endpoints() {
		switch {
		case e.Tape != "":
			fmt.Fprintf(w, "model %s: replies of the tape %s; nothing is called\n", progress.Clean(e.Model),
				progress.Clean(e.Tape))
		case e.Key == "":
			fmt.Fprintf(w, "model %s: requests go to %s (%s), without a key\n", progress.Clean(e.Model),
				progress.Clean(e.URL), e.Why)
		default:
			fmt.Fprintf(w, "model %s: requests go to %s (%s), with the key in %s\n", progress.Clean(e.Model),
				progress.Clean(e.URL), e.Why, e.Key)
		}
	}
	fmt.Fprintln(w, "\neffective limits:")
	for _, l := range r.Limits() {
		why := ""
		if l.Why != "" {
			why = "\t(" + l.Why + ")"
		}
		fmt.Fprintf(t, "  %s\t%s%s\n", strings.TrimSuffix(l.Name, " limit"), l.Value, why)
	}
	t.Flush()
	if cost.USD != nil {
		fmt.Fprintf(w, "\ncost: about $%.2f at the limits (%s)\n", *cost.USD, cost.Why)
	} else {
		fmt.Fprintf(w, "\ncost: unknown; %s\n", cost.Why)
	}
	for _, n := range r.Notes {
		fmt.Fprintf(w, "note: %s\n", n)
	}
	return nil
}

func limits(l *config.Limits) string {
	if l == nil {
		return "-"
	}
	var out []string
	switch {
	case l.Time == nil:
		out = append(out, "the task's time, else "+config.DefaultTime.String())
	case *l.Time > 0:
		out = append(out, l.Time.String())
	}
	for _, x := range []struct {
		n    config.Count
		what string
	}{{l.Turns, "turns"}, {l.Steps, "steps"}, {l.Tokens, "tokens"}} {
		if x.n > 0 {
			out = append(out, fmt.Sprintf("%d %s", x.n, x.what))
		}
	}
	if l.Cost > 0 {
		out = append(out, fmt.Sprintf("$%g", l.Cost))
	}
	return dash(strings.Join(out, ", "))
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return progress.Clean(s)
}
