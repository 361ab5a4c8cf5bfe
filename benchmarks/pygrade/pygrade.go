// Package pygrade grades a Python function by tests such that the function's code cannot forge the
// verdict.
//
// It uses two processes. The trusted process holds the tests. The candidate's code runs in a fork
// of it, and the tests call it through a pipe that carries only values encoded as JSON. Tricks such
// as exiting with status 0, printing markers, replacing check, exit hooks, or objects that are
// equal to everything only affect the candidate's own process, which does not produce the verdict.
// The verdict contains a nonce that is generated for each grading and passed to the trusted process
// after the fork; without the nonce a program does not pass.
//
// The candidate's process runs as a separate user if the sandbox has one available. If only one
// user is mapped, the trusted process makes itself undumpable, so that other processes of its user
// cannot access its memory and open files. Remaining risks are a machine whose root user keeps
// CAP_SYS_PTRACE (no isolating driver of evalrun does that), and bugs in the kernel or in Python's
// JSON parser. A value that is not a number, text, bytes, None, or a list, tuple, set or dict of
// such values arrives as an iterable, or as an object that is equal to nothing. Instances of
// subclasses arrive as their base class.
package pygrade

import (
	"bytes"
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/binary"
	"encoding/json"
	"strings"
	"time"

	"github.com/evalrun/evalrun/benchmarks/score"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

//go:embed check.py
var script string

// A Program is a candidate function with its tests.
type Program struct {
	Prompt string // trusted code for the tests: imports, helpers; may end in a function signature
	Source string // the candidate's complete program; not trusted
	Entry  string // name of the function
	// trusted code that defines check(candidate), which raises an exception on failure
	Test string
}

// An Outcome is the result of grading a program.
type Outcome struct {
	Passed bool
	Why    string // why the program did not pass
	// NoVerdict means that the tests gave no verdict, because the candidate ran too long, used too
	// much memory, or broke the machine.
	NoVerdict bool
	// TimedOut means that there is no verdict because of the timeout.
	TimedOut bool
	// Task means that the tests themselves are defective; Why says how.
	Task bool
	// Shared means that the two processes could not be isolated from each other, so a pass relies
	// on the candidate being honest.
	Shared bool
}

// Memory is the minimum memory of a machine for grading.
const Memory = 512 << 20

// Run grades p in sb, which nothing else may use meanwhile. An error is the sandbox's.
func Run(ctx context.Context, sb sandbox.Sandbox, p Program, timeout time.Duration) (Outcome, error) {
	nonce := rand.Text()
	var in, out, errs bytes.Buffer
	frame(&in, map[string]string{"prompt": p.Prompt, "source": p.Source, "entry": p.Entry})
	frame(&in, map[string]string{"test": p.Test, "nonce": nonce})
	exit, err := sb.Exec(ctx, sandbox.Command{
		// -I ignores PYTHON* variables and the working directory; -S: see Site in check.py; -B
		// writes no bytecode files.
		Args:  []string{"python3", "-I", "-S", "-B", "-c", script},
		Stdin: &in, Stdout: &out, Stderr: &errs, Limit: 64 << 10, FullLimit: -1, Timeout: timeout,
	})
	if err != nil {
		return Outcome{}, err
	}
	for line := range strings.Lines(out.String()) {
		rest, ok := strings.CutPrefix(line, nonce+" ")
		if !ok {
			continue
		}
		var v struct {
			Passed bool
			Why    string
			Task   string
			Shared bool
		}
		if err := json.Unmarshal([]byte(rest), &v); err != nil {
			continue
		}
		if v.Task != "" {
			return Outcome{Task: true, Why: v.Task}, nil
		}
		return Outcome{Passed: v.Passed, Why: v.Why, Shared: v.Shared}, nil
	}
	o := Outcome{NoVerdict: true, TimedOut: exit.TimedOut, Why: "the tests' process " + exit.How(timeout)}
	if exit.Code == 127 || exit.Code == 126 {
		o = Outcome{Task: true, Why: "there is no python3 in the grader's machine"}
	} else if tail := strings.TrimSpace(errs.String()); tail != "" {
		o.Why += ": " + score.Clip(strings.ToValidUTF8(tail, "\ufffd"), 1000)
	}
	return o, nil
}

func frame(b *bytes.Buffer, v map[string]string) {
	raw, _ := json.Marshal(v) // marshaling a map of strings cannot fail
	b.Write(binary.BigEndian.AppendUint64(nil, uint64(len(raw))))
	b.Write(raw)
}
