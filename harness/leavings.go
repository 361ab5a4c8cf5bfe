package harness

import (
	"errors"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// leavings tells a failure that comes from what the agent did in its machine, or left there, from a
// failure of ours: it must not take the trial out of the score. why is empty for all others. What
// counts is the kind of the error, whatever the operation:
//
//	LeftError     the benchmark says so: what was collected does not go into a grader's machine, say
//	FileError     what was read from a machine is not as it should be
//	Error.Inside  the agent's machine is well, and what is in it prevents the operation; only after the
//	              agent has acted, as before that it is the image's or the task's
//	ErrSandboxOOM   the agent's machine has ended by its own memory limit; after it has acted, as above
//
// Three kinds are ambiguous, as a slow host looks the same: a machine that stopped answering, one
// whose processes do not die, and one in which something takes too long. These are tried again
// first; see [attempt.lostMachine].
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

// opKillAll is the operation of an error that says that processes do not die.
const opKillAll = "kill all"

// ran notes that an action was executed, whatever came of it. One that the machine refused says
// nothing of the agent: where none was executed before, the machine came like this.
func (a *attempt) ran(err error) {
	if sb := (*sandbox.Error)(nil); errors.As(err, &sb) && sb.Inside {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.acted = true
}

// hasActed reports whether the agent has acted, and id is a machine of its own. A service is named
// after its machine.
func (a *attempt) hasActed(id string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.acted && a.isTheirs(id)
}

// isTheirs is for who holds the lock.
func (a *attempt) isTheirs(id string) bool {
	return slices.ContainsFunc(a.theirs, func(own string) bool { return id == own || strings.HasPrefix(id, own+"-") })
}

// refusedResult is the grade of an agent after which nothing can be graded: 0, with the reason.
func refusedResult(why string) benchmarks.Result {
	zero := 0.0
	return benchmarks.Result{
		Scores: []record.Score{{Name: "reward", Primary: true, Value: &zero, Why: why}},
		Flags:  []string{benchmarks.FlagNoReward},
	}
}
