package harness_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/harness/blob"
	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// Leftovers of the agent that make grading impossible score 0 with a flag; an infrastructure
// failure does not.
func TestLeavings(t *testing.T) {
	inside := func(op string) error {
		return &sandbox.Error{Op: op, ID: "m1", Err: errors.New("folders nested too deep"), Inside: true}
	}
	ours := &sandbox.Error{Op: "get", ID: "m1", Err: errors.New("the engine is gone")}
	tampered := &sandbox.FileError{Name: "a", Err: errors.New("a hostile name")}
	for _, tt := range []struct {
		name  string
		op    string // name of the operation that fails in the agent's sandbox
		err   error
		grade error // of the benchmark
		live  bool
		idle  bool
		want  record.Status
		tries int
	}{
		{"nothing", "", nil, nil, false, false, record.Scored, 1},
		{"collecting", "collect", inside("get"), nil, false, false, record.Scored, 1},
		{"collecting for a live grade", "collect", inside("get"), nil, true, false, record.Scored, 1},
		{"collecting, by the engine", "collect", ours, nil, false, false, record.Infra, 2},
		{"collecting without an agent that acts", "collect", inside("get"), nil, false, true, record.Infra, 2},
		{"a hostile file", "collect", tampered, nil, false, false, record.Scored, 1},
		{"processes that do not die", "kill", inside("kill all"), nil, false, false, record.Scored, 2},
		{"the first action", "exec", inside("exec"), nil, false, false, record.Infra, 2},
		{"the first action, by a user that the image does not have", "exec",
			&sandbox.Error{Op: "exec", ID: "m1", Err: errors.New("no user"), Inside: true, Permanent: true}, nil, false,
			false, record.Infra, 1},
		{"a later action", "second", inside("exec"), nil, false, false, record.Scored, 1},
		{"putting it into a grader's machine", "", nil,
			benchmarks.Left(&sandbox.Error{Op: "put", ID: "g1", Err: errors.New("is a directory"), Inside: true}),
			false, false, record.Scored, 1},
		{"a grader's machine that is lost", "", nil,
			benchmarks.Left(&sandbox.Error{Op: "put", ID: "g1", Err: sandbox.ErrGone}), false, false, record.Grader, 2},
		{"a grader's machine that refuses something else", "", nil,
			&sandbox.Error{Op: "exec", ID: "g1", Err: errors.New("no bash"), Inside: true}, false, false, record.Grader,
			2},
		{"grading in the agent's machine", "", nil, inside("exec"), true, false, record.Scored, 1},
		{"its memory limit, while it is collected", "collect", &sandbox.Error{Op: "get", Err: sandbox.ErrSandboxOOM},
			nil,
			false, false, record.Scored, 1},
		{"its memory limit, while processes are ended", "kill",
			&sandbox.Error{Op: "kill all", Err: sandbox.ErrSandboxOOM}, nil, false, false, record.Scored, 1},
		{"its memory limit, before it acts", "collect", &sandbox.Error{Op: "get", Err: sandbox.ErrSandboxOOM}, nil,
			false,
			true, record.Infra, 2},
		{"its end for no known reason", "collect", &sandbox.Error{Op: "get", Err: sandbox.ErrGone}, nil, false, false,
			record.Infra, 2},
		{"a grader's machine that outgrows its memory", "", nil,
			&sandbox.Error{Op: "kill all", ID: "g1", Err: sandbox.ErrSandboxOOM}, false, false, record.Scored, 1},
		{"putting more into a grader's machine than it takes", "", nil,
			benchmarks.Left(&sandbox.Error{Op: "put", ID: "g1", Err: sandbox.ErrSandboxOOM}), false, false,
			record.Scored,
			1},
		{"a grader's machine that hangs in what it runs", "", nil,
			&sandbox.Error{Op: "exec", ID: "g1", Err: sandbox.ErrHung}, false, false, record.Scored, 2},
		{"a grader's machine that hangs as it starts", "", nil,
			&sandbox.Error{Op: "create", ID: "g1", Err: sandbox.ErrHung}, false, false, record.Grader, 2},
		{"the task", "", nil, &benchmarks.TaskError{Task: "t", Err: benchmarks.Left(inside("put"))}, false, false,
			record.Grader, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			acts := agent.Func(func(ctx context.Context, s *agent.Session) (agent.Answer, error) {
				m, ok := agent.As[agent.Machine](s.Env)
				if !ok {
					return agent.Answer{}, errors.New("no machine")
				}
				for range 2 {
					if tt.idle {
						break
					}
					if _, err := m.Exec(ctx, sandbox.Command{Args: []string{"true"}}); err != nil {
						return agent.Answer{}, err
					}
				}
				return agent.Answer{Parts: event.Text("right")}, nil
			})
			var sb sandbox.Sandbox
			spec := sandbox.Spec{}
			b := &toy{tasks: 1,
				needs: func(int) benchmarks.Needs {
					return benchmarks.Needs{Agent: []sandbox.Spec{spec}, GradeLive: tt.live}
				},
				opens: func(h benchmarks.Host) (err error) {
					sb, err = h.Sandbox(context.Background(), spec)
					return err
				},
				wrap: func(e benchmarks.Episode) benchmarks.Episode { return &hangEpisode{e, sb} },
				grade: func(context.Context, benchmarks.Evidence, benchmarks.Episode) (benchmarks.Result, error) {
					v := 1.0
					return benchmarks.Result{Scores: []record.Score{{Name: "x", Primary: true, Value: &v}}}, tt.grade
				},
			}
			bed := newBed(t, b, acts)
			store, err := blob.Open(t.TempDir(), blob.Options{})
			if err != nil {
				t.Fatal(err)
			}
			commands := 0
			fail := func(call, machine string) error {
				if call == "exec" {
					commands++
				}
				// The agent executed the first action.
				if call != tt.op && !(tt.op == "second" && commands > 1) {
					return nil
				}
				if e, ok := tt.err.(*sandbox.Error); ok {
					of := *e
					of.ID = machine
					return &of
				}
				return tt.err
			}
			bed.cfg.Provider, bed.cfg.Blobs = &hangs{fail: fail}, store
			bed.cfg.Retry.Attempts = 2
			bed.run(t, t.Context())
			var all []record.Verdict
			for _, p := range bed.seen {
				if p.Kind == "verdict" {
					all = append(all, *p.Verdict)
				}
			}
			if len(all) != tt.tries {
				t.Fatalf("%d attempts, want %d: %+v", len(all), tt.tries, all)
			}
			last := all[len(all)-1]
			if last.Status != tt.want {
				t.Fatalf("%+v, want %s", last, tt.want)
			}
			if tt.want != record.Scored || tt.err == nil && tt.grade == nil {
				return
			}
			if last.Reward == nil {
				t.Fatalf("no reward: %+v", last)
			}
			if tt.name == "a later action" { // the agent broke its sandbox and is graded as it is
				if last.End != record.Broke || !strings.Contains(last.Error.Text, "nested too deep") {
					t.Errorf("%+v", last)
				}
				return
			}
			if *last.Reward != 0 || !slices.Contains(last.Flags, benchmarks.FlagNoReward) || len(last.Scores) != 1 ||
				last.Scores[0].Why == "" {
				t.Errorf("%+v, want 0 with a flag and the reason", last)
			}
		})
	}
}
