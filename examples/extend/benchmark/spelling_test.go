package spelling

import (
	"math"
	"testing"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/benchmarks/benchtest"
)

func open(t *testing.T) *Benchmark {
	b, err := New("texts.jsonl", nil)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The known solution scores 1, doing nothing 0, and grading twice gives the same.
func TestSuite(t *testing.T) {
	benchtest.Run(t, benchtest.Suite{Benchmark: open(t), Want: 3})
}

func TestGrade(t *testing.T) {
	b := open(t)
	sea, err := b.Source().Task(t.Context(), "sea")
	if err != nil {
		t.Fatal(err)
	}
	for answer, want := range map[string]float64{
		"She sells sea shells.":  1,
		"She sells sea shels.":   1 - 1.0/3,
		"Sheee sels sea shels.":  0,
		"She sells shells.":      0, // another number of words
		"Shee selz c shellz mor": 0,
	} {
		ev := benchmarks.Evidence{Answer: agent.Answer{Parts: event.Text(answer)}}
		r, err := b.Grade(t.Context(), nil, sea, ev, nil)
		if err != nil || math.Abs(*r.Primary().Value-want) > 1e-9 {
			t.Errorf("%q: %+v, %v; want %v", answer, r, err, want)
		}
	}
}
