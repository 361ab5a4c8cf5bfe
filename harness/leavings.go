package harness

import (
	"errors"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// leavings returns why a failure was caused by what the agent did or left in its sandbox, or "" if
// it was not. Such a failure must not remove the trial from the score. The kind of the error
// decides, whatever the operation:
//
//	LeftError        the benchmark reports it, for example when collected files cannot be put
//	                 into a grader's sandbox
//	FileError        a file read from a sandbox is malformed
//	Error.Inside     the agent's sandbox works, but its contents prevent the operation; only after
//	                 the agent has acted, because before that the image or the task is to blame
//	ErrSandboxOOM    the agent's sandbox hit its memory limit; only after the agent has acted
//
// Three kinds are ambiguous, because a slow host looks the same: a sandbox that stopped responding,
// one whose processes cannot be killed, and one in which an operation takes too long. These are
// retried first; see [attempt.lostMachine].
func (a *attempt) leavings(err error) (why string) {
	var left *benchmarks.LeftError
	var sb *sandbox.Error
	switch {
	case err == nil, errors.As(err, new(*errStorage)), errors.As(err, new(*errTooSlow)),
		errors.As(err, new(*benchmarks.TaskError)):
		return ""
	case errors.As(err, &sb) && benchmarks.Inside(sb) && (sb.Inside && sb.Op == opKillAll || !a.hasActed(sb.ID)):
		return ""
	case errors.As(benchmarks.Left(err), &left):
		return left.Error()
	}
	return ""
}

// opKillAll is the Op of an error that says that processes could not be killed.
const opKillAll = "kill all"

// ran records that an action was executed, with whatever result. An action that the sandbox itself
// refused is not counted, so that a sandbox that was unusable from the start is not blamed on the
// agent.
func (a *attempt) ran(err error) {
	if sb := (*sandbox.Error)(nil); errors.As(err, &sb) && sb.Inside {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.acted = true
}

// hasActed reports whether the agent has acted and id is one of its sandboxes. A service's ID
// begins with the ID of its sandbox.
func (a *attempt) hasActed(id string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.acted && a.isTheirs(id)
}

// isTheirs reports whether id is one of the agent's sandboxes. The caller holds the lock.
func (a *attempt) isTheirs(id string) bool {
	return slices.ContainsFunc(a.theirs, func(own string) bool { return id == own || strings.HasPrefix(id, own+"-") })
}

// refusedResult returns the result of an agent whose leftovers cannot be graded: score 0, with the
// reason.
func refusedResult(why string) benchmarks.Result {
	zero := 0.0
	return benchmarks.Result{
		Scores: []record.Score{{Name: "reward", Primary: true, Value: &zero, Why: why}},
		Flags:  []string{benchmarks.FlagNoReward},
	}
}
