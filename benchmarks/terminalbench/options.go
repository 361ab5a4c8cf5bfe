package terminalbench

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path"
	"time"

	"github.com/evalrun/evalrun/benchmarks/harbor/verify"
)

// Options of the benchmark.
type Options struct {
	TaskIDs    []string `json:"task_ids,omitempty" min:"1" doc:"Only tasks whose name matches one of these patterns, such as 'fix-*'."`
	ExcludeIDs []string `json:"exclude_task_ids,omitempty" doc:"Leave out tasks whose name matches one of these patterns."`
	NTasks     int      `json:"n_tasks,omitempty" min:"1" doc:"Only the first N of these tasks."`

	Timeout      float64  `json:"timeout_multiplier,omitempty" doc:"Factor of all time limits that tasks set. Default 1."`
	AgentTimeout *float64 `json:"agent_timeout_multiplier,omitempty" doc:"Factor of the agent's limit, in place of timeout_multiplier."`
	TestTimeout  *float64 `json:"test_timeout_multiplier,omitempty" doc:"Factor of the tests' limit, in place of timeout_multiplier."`

	Work []string `json:"work,omitempty" doc:"Paths of what counts as an agent's work, in place of those that evalrun takes from the task; a relative path is in the working directory. Of a folder of the system, such as /etc, name files."`
}

func parseOptions(raw json.RawMessage) (o Options, err error) {
	if len(raw) > 0 {
		dec := json.NewDecoder(bytes.NewReader(raw))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&o); err != nil {
			return o, err
		}
	}
	return o, o.check()
}

func (o *Options) check() error {
	var errs []error
	for name, f := range map[string]*float64{"timeout_multiplier": &o.Timeout,
		"agent_timeout_multiplier": o.AgentTimeout, "test_timeout_multiplier": o.TestTimeout} {
		if f != nil && (*f < 0 || math.IsNaN(*f) || math.IsInf(*f, 0) || *f == 0 && f != &o.Timeout) {
			errs = append(errs, fmt.Errorf("%s: %v; want a factor above 0", name, *f))
		}
	}
	for _, p := range append(append([]string(nil), o.TaskIDs...), o.ExcludeIDs...) {
		if _, err := path.Match(p, ""); err != nil {
			errs = append(errs, fmt.Errorf("pattern %q: %w", p, err))
		}
	}
	if o.NTasks < 0 {
		errs = append(errs, errors.New("n_tasks must not be negative"))
	}
	if err := verify.CheckWork(o.Work); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// wants reports whether a task is among those that the run plays.
func (o *Options) wants(id string) bool {
	fits := func(patterns []string) bool {
		for _, p := range patterns {
			if ok, _ := path.Match(p, id); ok {
				return true
			}
		}
		return false
	}
	return (len(o.TaskIDs) == 0 || fits(o.TaskIDs)) && !fits(o.ExcludeIDs)
}

func (o *Options) agentTime(d time.Duration) time.Duration { return o.scale(d, o.AgentTimeout) }
func (o *Options) testTime(d time.Duration) time.Duration  { return o.scale(d, o.TestTimeout) }

func (o *Options) scale(d time.Duration, own *float64) time.Duration {
	f := o.Timeout
	if own != nil {
		f = *own
	}
	if f == 0 {
		return d
	}
	return time.Duration(max(1, min(float64(d)*f, maxSeconds*float64(time.Second))))
}
