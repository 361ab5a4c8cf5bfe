// Package pygrade grades a Python function by tests, so that what the function's author writes
// cannot make up the verdict.
//
// Two processes do it. The trusted one holds the tests; the candidate's code runs in a fork of it,
// and the tests call it through a pipe that carries nothing but values as JSON. Leaving with status
// 0, printing markers, replacing check, hooks at exit, objects that are equal to everything: all
// that happens in the candidate's own process, where there is no verdict to be made. The verdict
// carries a nonce, made up for each grading and handed to the trusted process after the fork;
// without it there is no pass.
//
// The candidate's process gets a user of its own where the sandbox has one to give. Where it has
// not (one user mapped), the trusted process makes itself undumpable, so that its memory and open
// files are closed to others of its user. What remains to be doubted: a machine whose root keeps
// CAP_SYS_PTRACE (no driver of ours that isolates), and holes in the kernel or in Python's JSON
// parser. A value that is neither a number, text, bytes, None nor made of lists, tuples, sets and
// dicts of such arrives as an iterable, or as an object that is equal to nothing; subclasses arrive
// as their base.
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

// A Program to be graded.
type Program struct {
	Prompt string // trusted code that the tests may use: imports, helpers; may end in a function's head
	Source string // of the candidate, whole; not trusted
	Entry  string // name of the function
	Test   string // trusted code that defines check(candidate), which raises when something is wrong
}

// An Outcome of a grading.
type Outcome struct {
	Passed bool
	Why    string // not passed: what was wrong
	// NoVerdict: no verdict came, for the candidate ran too long, took too much memory, or broke
	// the machine.
	NoVerdict bool
	// TimedOut: there is no verdict, because the time was up.
	TimedOut bool
	// Task: the tests themselves are at fault; Why says how.
	Task bool
	// Shared: the two processes could not be kept apart, so that a pass is worth as much as the
	// candidate's honesty.
	Shared bool
}

// Memory that a machine for grading needs at the least.
const Memory = 512 << 20

// Run grades p in sb, which nobody else uses meanwhile. Its error is the sandbox's.
func Run(ctx context.Context, sb sandbox.Sandbox, p Program, timeout time.Duration) (Outcome, error) {
	nonce := rand.Text()
	var in, out, errs bytes.Buffer
	frame(&in, map[string]string{"prompt": p.Prompt, "source": p.Source, "entry": p.Entry})
	frame(&in, map[string]string{"test": p.Test, "nonce": nonce})
	exit, err := sb.Exec(ctx, sandbox.Command{
		// -I: no PYTHON* variables, nothing from the working directory; -S: see Site in check.py;
		// -B: no files written.
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
	raw, _ := json.Marshal(v) // a map of strings cannot fail
	b.Write(binary.BigEndian.AppendUint64(nil, uint64(len(raw))))
	b.Write(raw)
}
