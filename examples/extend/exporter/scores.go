// Package scores is a format that evalrun can export a run to: a table of tasks and arms, for a
// spreadsheet.
package scores

import (
	"encoding/csv"
	"io"
	"strconv"

	"github.com/evalrun/evalrun/reports/export"
)

// An Exporter adds rewards up as the rows come, and writes its file at the end.
type Exporter struct {
	options Options
	file    io.Writer
	arms    []string
	tasks   []task
	sums    map[cell]sum
}

type (
	task struct{ benchmark, id string }
	cell struct {
		task
		arm string
	}
	sum struct {
		reward float64
		n      int
	}
)

func (x *Exporter) Write(rows *export.Rows) error {
	for _, a := range rows.Arms {
		x.arms = append(x.arms, a.Arm)
	}
	for _, t := range rows.Tasks {
		x.tasks = append(x.tasks, task{t.Benchmark, t.Task})
	}
	for _, t := range rows.Trials {
		if t.Reward == nil || t.Status == nil || *t.Status != "scored" {
			continue // infrastructure failures are no evidence
		}
		c := cell{task{t.Benchmark, t.Task}, t.Arm}
		s := x.sums[c]
		x.sums[c] = sum{s.reward + *t.Reward, s.n + 1}
	}
	return nil
}

func (x *Exporter) Close() error {
	w := csv.NewWriter(x.file)
	w.Write(append([]string{"benchmark", "task"}, x.arms...))
	for _, t := range x.tasks {
		line := []string{t.benchmark, t.id}
		for _, arm := range x.arms {
			line = append(line, x.mean(cell{t, arm}))
		}
		w.Write(line)
	}
	w.Flush()
	return w.Error()
}

// mean is "" where there is no evidence.
func (x *Exporter) mean(c cell) string {
	s := x.sums[c]
	if s.n == 0 {
		return ""
	}
	digits := -1
	if x.options.Digits != nil {
		digits = *x.options.Digits
	}
	return strconv.FormatFloat(s.reward/float64(s.n), 'f', digits, 64)
}
