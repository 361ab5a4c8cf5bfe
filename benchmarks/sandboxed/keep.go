package sandboxed

import (
	"encoding/json"

	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// kept is what of a run's wishes for machines shapes a grader's: a later grading of the same
// evidence has to use the same.
type kept struct {
	Image  string  `json:"image,omitempty"`
	CPUs   float64 `json:"cpus,omitempty"`
	Memory int64   `json:"memory,omitempty"`
	Disk   int64   `json:"disk,omitempty"`
	Pids   int     `json:"pids,omitempty"`
	// Integrity is kept where it is more than the default.
	Integrity string `json:"integrity,omitempty"`
}

// Keep notes the run's wishes for an evidence's Data, from where [Kept] reads them when it is
// graded. Nothing wished: nil.
func Keep(o benchmarks.Options) json.RawMessage {
	s := o.Sandbox
	k := kept{Image: s.Image.Ref, CPUs: s.CPUs, Memory: s.Memory, Disk: s.Disk, Pids: s.Pids}
	if o.Integrity != "warn" {
		k.Integrity = o.Integrity
	}
	if k == (kept{}) {
		return nil
	}
	raw, _ := json.Marshal(k) // finite numbers and a string cannot fail
	return raw
}

// Kept is the part of the run's wishes that Keep noted.
func Kept(data json.RawMessage) (benchmarks.Options, error) {
	var k kept
	if len(data) > 0 {
		if err := json.Unmarshal(data, &k); err != nil {
			return benchmarks.Options{}, err
		}
	}
	return benchmarks.Options{Integrity: k.Integrity, Sandbox: sandbox.Spec{
		Image: sandbox.Image{Ref: k.Image}, CPUs: k.CPUs, Memory: k.Memory, Disk: k.Disk, Pids: k.Pids,
	}}, nil
}
