package text

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/harness/record"
)

// rewarded is a run of arms × tasks × repeats, every trial of which has the reward that f says.
func rewarded(t testing.TB, arms, tasks, repeats int, f func(arm, task, repeat int) float64) *Results {
	t.Helper()
	p := &record.Plan{Run: "r", Seed: 1, Repeats: repeats, Benchmarks: []record.Benchmark{{Name: "toy"}}}
	for i := range arms {
		p.Arms = append(p.Arms, record.Arm{ID: fmt.Sprintf("arm-id-%d", i), Name: fmt.Sprintf("arm-%d", i),
			Agent: "nop"})
	}
	for i := range tasks {
		p.Tasks = append(p.Tasks, record.Task{Benchmark: "toy", ID: fmt.Sprintf("task-%d", i),
			Digest: fmt.Sprintf("digest-%d", i)})
	}
	r, err := Collect(p, nil, func(yield func(record.Entry, error) bool) {
		seq := int64(0)
		put := func(trial, kind string, v any) bool {
			data, err := json.Marshal(v)
			if err != nil {
				panic(err)
			}
			seq++
			return yield(record.Entry{Seq: seq, Trial: trial, Attempt: 1, Kind: kind, Data: data}, nil)
		}
		for a := range arms {
			for i := range tasks {
				for rep := 1; rep <= repeats; rep++ {
					trial := record.TrialID(p.Arms[a].ID, p.Tasks[i].Digest, rep)
					reward := f(a, i, rep)
					if !put(trial, record.KindAttempt,
						record.Attempt{Arm: p.Arms[a].ID, Digest: p.Tasks[i].Digest, Repeat: rep, Attempt: 1}) ||
						!put(trial, record.KindVerdict,
							record.Verdict{Final: true, Status: record.Scored, End: record.Answered, Reward: &reward}) {
						return
					}
				}
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Where pass@k is missing the summary says why, and a threshold brings it back.
func TestSuccess(t *testing.T) {
	r := rewarded(t, 2, 2, 2, func(arm, task, repeat int) float64 {
		if arm == 0 {
			return float64(task)
		}
		return []float64{0.25, 0.75}[repeat-1]
	})
	s := r.Summary("out")
	if a := s.Arms[0]; a.PassAtK == nil || *a.PassAtK != 0.5 || a.PassWhy != "" {
		t.Errorf("rewards of 0 and 1: %+v", a)
	}
	if a := s.Arms[1]; a.PassAtK != nil ||
		!strings.Contains(a.PassWhy, "a reward of 0.25 is neither right nor wrong") ||
		!strings.Contains(a.PassWhy, "success: 0.5") {
		t.Errorf("fractions: %+v", a)
	}
	for name, f := range map[string]func(*Summary, *bytes.Buffer) error{
		"text":     func(s *Summary, b *bytes.Buffer) error { return s.Text(b, Style{}) },
		"markdown": func(s *Summary, b *bytes.Buffer) error { return s.Markdown(b) },
	} {
		var b bytes.Buffer
		if err := f(s, &b); err != nil || !strings.Contains(b.String(), "no pass@2: a reward of 0.25") {
			t.Errorf("%s: %v\n%s", name, err, &b)
		}
	}
	if n := len(r.Trials(TrialFilter{Status: []string{"passed"}})); n != 2 {
		t.Errorf("%d passed, want 2", n)
	}

	r.Success = ptr(0.5)
	s = r.Summary("out")
	if a := s.Arms[1]; a.PassAtK == nil || *a.PassAtK != 1 || *a.PassHatK != 0 || a.PassWhy != "" {
		t.Errorf("with a threshold: %+v", a)
	}
	var b bytes.Buffer
	if err := s.Text(&b, Style{}); err != nil ||
		!strings.Contains(b.String(), "pass@2 1.000, pass^2 0.000 (right: reward ≥ 0.5)") {
		t.Errorf("%v\n%s", err, &b)
	}
	if n := len(r.Trials(TrialFilter{Status: []string{"passed"}})); n != 4 {
		t.Errorf("%d passed with a threshold, want 4", n)
	}
	if n := len(r.Trials(TrialFilter{Status: []string{"failed"}})); n != 4 {
		t.Errorf("%d failed with a threshold, want 4", n)
	}
}

// BenchmarkManyArms is the time of a summary for each arm, which does not grow with the number of
// arms.
func BenchmarkManyArms(b *testing.B) {
	for _, arms := range []int{100, 1_000, 10_000} {
		b.Run(fmt.Sprint(arms), func(b *testing.B) {
			r := rewarded(b, arms, 20, 1, func(arm, task, _ int) float64 { return float64((arm + task) % 2) })
			for b.Loop() {
				if s := r.Summary("out"); len(s.Arms) != arms {
					b.Fatal(len(s.Arms))
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*arms), "µs/arm")
		})
	}
}
