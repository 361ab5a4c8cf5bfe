package sandboxed

import (
	"encoding/json"

	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// savedOptions are the run's options that a grader's machine depends on, so that a later grading of
// the same evidence uses the same.
type savedOptions struct {
	Image  string  `json:"image,omitempty"`
	CPUs   float64 `json:"cpus,omitempty"`
	Memory int64   `json:"memory,omitempty"`
	Disk   int64   `json:"disk,omitempty"`
	Pids   int     `json:"pids,omitempty"`
}

// SaveOptions encodes the run's options that grading depends on, for an evidence's Data; nil: all
// are the defaults. [LoadOptions] decodes them.
func SaveOptions(o benchmarks.Options) json.RawMessage {
	s := o.Sandbox
	k := savedOptions{Image: s.Image.Ref, CPUs: s.CPUs, Memory: s.Memory, Disk: s.Disk, Pids: s.Pids}
	if k == (savedOptions{}) {
		return nil
	}
	raw, _ := json.Marshal(k) // finite numbers and a string cannot fail
	return raw
}

// LoadOptions returns the options that [SaveOptions] has encoded.
func LoadOptions(data json.RawMessage) (benchmarks.Options, error) {
	var k savedOptions
	if len(data) > 0 {
		if err := json.Unmarshal(data, &k); err != nil {
			return benchmarks.Options{}, err
		}
	}
	return benchmarks.Options{Sandbox: sandbox.Spec{
		Image: sandbox.Image{Ref: k.Image}, CPUs: k.CPUs, Memory: k.Memory, Disk: k.Disk, Pids: k.Pids,
	}}, nil
}
