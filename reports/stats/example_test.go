package stats_test

import (
	"fmt"

	"github.com/evalrun/evalrun/reports/stats"
)

// 40 tasks were played with two prompts. Both solve 20 of them, the first alone 2, the second alone
// 12; nothing solves the other 6.
func ExampleCompare() {
	var pairs []stats.Pairing
	add := func(n int, a, b float64) {
		for range n {
			pairs = append(pairs, stats.Pairing{A: a, B: b})
		}
	}
	add(20, 1, 1)
	add(2, 1, 0)
	add(12, 0, 1)
	add(6, 0, 0)

	p := stats.Compare([][]stats.Pairing{pairs}, 0.95)[0]
	fmt.Printf("B − A = %+.0f points, 95 %% interval %+.0f to %+.0f, p = %.3f: %s\n",
		100*p.Diff, 100*p.Interval.Low, 100*p.Interval.High, *p.P, p.Verdict)
	// Output: B − A = +25 points, 95 % interval +8 to +42, p = 0.007: b_better
}

// Three repeats of a task are no three tasks: values that share a cluster count as what they are.
func ExampleEstimate() {
	var values []stats.Value
	for task, solved := range map[string]int{"a": 3, "b": 3, "c": 2, "d": 1, "e": 0, "f": 3, "g": 3, "h": 0} {
		for repeat := range 3 {
			v := stats.Value{Cluster: task}
			if repeat < solved {
				v.X = 1
			}
			values = append(values, v)
		}
	}
	e, _ := stats.Estimate(values, 0.95)
	fmt.Printf("%.1f %% of %d tasks\n", 100*e.Mean, e.Clusters)
	fmt.Println("interval:", e.Method)
	// Output:
	// 62.5 % of 8 tasks
	// interval: mid-p over clusters
}

// Of 10 tries of a task 3 were right: what if there were 5 tries, and one right one is enough, or
// all of them have to be right?
func ExamplePassAtK() {
	fmt.Printf("pass@5 %.3f, pass^2 %.3f\n", stats.PassAtK(10, 3, 5), stats.PassHatK(10, 3, 2))
	// Output: pass@5 0.917, pass^2 0.067
}
