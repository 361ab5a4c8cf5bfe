package datasets_test

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/evalrun/evalrun/datasets"
)

// sums makes tasks up instead of reading them.
type sums struct{ n int }

func (s sums) Tasks(ctx context.Context) iter.Seq2[datasets.Task, error] {
	return func(yield func(datasets.Task, error) bool) {
		for i := range s.n {
			t, err := s.Task(ctx, fmt.Sprint("sum-", i))
			if !yield(t, err) {
				return
			}
		}
	}
}

func (s sums) Task(_ context.Context, id string) (datasets.Task, error) {
	var i int
	if _, err := fmt.Sscanf(id, "sum-%d", &i); err != nil || i >= s.n {
		return datasets.Task{}, datasets.ErrNoTask
	}
	if i == 1 {
		return datasets.Task{}, &datasets.BadTask{ID: id, Err: errors.New("nobody knows the answer")}
	}
	return datasets.Task{ID: id, Data: fmt.Appendf(nil, `{"a":%d,"b":2,"sum":%d}`, i, i+2)}, nil
}

// A task that cannot be read is a value in the sequence. The others are played.
func ExampleSource() {
	var source datasets.Source = sums{n: 3}
	for task, err := range source.Tasks(context.Background()) {
		if err != nil {
			fmt.Println("skipped:", err)
			continue
		}
		fmt.Printf("%s %s\n", task.ID, task.Data)
	}
	// Output:
	// sum-0 {"a":0,"b":2,"sum":2}
	// skipped: task "sum-1": nobody knows the answer
	// sum-2 {"a":2,"b":2,"sum":4}
}
