package harness_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/harness/blob"
	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// A hangs is a provider whose sandboxes hang in one of their calls, or fail with the given error.
// They are named m1, m2 …
type hangs struct {
	in   string                           // the call that hangs: create, exec, kill, collect, grade
	fail func(call, machine string) error // if not nil, the call returns this error instead
	made atomic.Int32
}

func (h *hangs) Acquire(context.Context, []sandbox.Spec) (sandbox.Lease, error) {
	return hangLease{h}, nil
}

type hangLease struct{ h *hangs }

func (l hangLease) Close() error { return nil }
func (l hangLease) Sandbox(_ context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	m := &hangMachine{h: l.h, id: fmt.Sprintf("m%d", l.h.made.Add(1))}
	return m, m.call("create")
}

type hangMachine struct {
	sandbox.Sandbox
	h  *hangs
	id string
}

func (m *hangMachine) call(name string) error {
	if m.h.fail != nil {
		return m.h.fail(name, m.id)
	}
	if name != m.h.in {
		return nil
	}
	return &sandbox.Error{Op: name, ID: m.id, Err: fmt.Errorf("%w (no answer)", sandbox.ErrHung),
		Detail: "goroutine 1 [running]"}
}

func (m *hangMachine) ID() string { return m.id }
func (m *hangMachine) Exec(context.Context, sandbox.Command) (sandbox.Exit, error) {
	return sandbox.Exit{}, m.call("exec")
}
func (m *hangMachine) Get(context.Context, string) (io.ReadCloser, error) {
	return nil, m.call("collect")
}
func (m *hangMachine) KillAll(context.Context) error { return m.call("kill") }
func (m *hangMachine) Close() error                  { return nil }

// A hangEpisode is an episode in such a sandbox.
type hangEpisode struct {
	benchmarks.Episode
	sb sandbox.Sandbox
}

func (e *hangEpisode) Machine(context.Context) (sandbox.Sandbox, error) { return e.sb, nil }
func (e *hangEpisode) Started() sandbox.Sandbox                         { return e.sb }
func (e *hangEpisode) Dir() string                                      { return "/" }
func (e *hangEpisode) Next(ctx context.Context, prev *benchmarks.Result) (*benchmarks.Stage, error) {
	s, err := e.Episode.Next(ctx, prev)
	if s != nil {
		s.Leave = e.sb.(interface{ Unwrap() sandbox.Sandbox }).Unwrap().(*hangMachine).h.in == "grade"
	}
	return s, err
}
func (e *hangEpisode) Collect(ctx context.Context, ans agent.Answer) (benchmarks.Evidence, error) {
	if _, err := e.sb.Get(ctx, "/"); err != nil {
		return benchmarks.Evidence{}, err
	}
	return e.Episode.Collect(ctx, ans)
}

// A sandbox that hangs is an infrastructure failure: it is retried, and the stacks are stored. If
// the agent's processes were in it, the last attempt scores 0.
func TestHung(t *testing.T) {
	acts := agent.Func(func(ctx context.Context, s *agent.Session) (agent.Answer, error) {
		m, ok := agent.As[agent.Machine](s.Env)
		if !ok {
			return agent.Answer{}, errors.New("no machine")
		}
		_, err := m.Exec(ctx, sandbox.Command{Args: []string{"true"}})
		return agent.Answer{Parts: event.Text("right")}, err
	})
	idle := agent.Func(func(context.Context, *agent.Session) (agent.Answer, error) {
		return agent.Answer{Parts: event.Text("right")}, nil
	})
	for _, tt := range []struct {
		in    string
		agent agent.Agent
		live  bool // the verifier works in the agent's sandbox
		first record.Status
		last  record.Status
		phase string
	}{
		{"create", acts, false, record.Infra, record.Infra, "start"},
		{"exec", acts, false, record.Infra, record.Scored, "agent"},
		{"kill", acts, false, record.Infra, record.Scored, "collect"},
		{"kill", idle, false, record.Infra, record.Infra, "collect"},
		{"collect", acts, false, record.Infra, record.Infra, "collect"}, // all processes were killed before
		{"grade", acts, true, record.Grader, record.Scored, "grade"},
		{"grade", idle, true, record.Grader, record.Grader, "grade"},
		{"grade", acts, false, record.Grader, record.Grader, "grade"},
	} {
		t.Run(fmt.Sprintf("%s, live %v", tt.in, tt.live), func(t *testing.T) {
			spec := sandbox.Spec{}
			var sb sandbox.Sandbox
			b := &toy{tasks: 1,
				needs: func(int) benchmarks.Needs {
					return benchmarks.Needs{Agent: []sandbox.Spec{spec}, Grader: []sandbox.Spec{spec},
						GradeLive: tt.live}
				},
				opens: func(h benchmarks.Host) (err error) {
					sb, err = h.Sandbox(context.Background(), spec)
					return err
				},
				wrap: func(e benchmarks.Episode) benchmarks.Episode { return &hangEpisode{e, sb} },
			}
			var host benchmarks.Host
			b.hosts = func(h benchmarks.Host) { host = h }
			b.grade = func(ctx context.Context, _ benchmarks.Evidence,
				_ benchmarks.Episode) (benchmarks.Result, error) {
				m := sb
				if !tt.live {
					var err error
					if m, err = host.Sandbox(ctx, spec); err != nil {
						return benchmarks.Result{}, err
					}
				}
				v := 1.0
				return benchmarks.Result{Scores: []record.Score{{Name: "x", Primary: true, Value: &v}}},
					m.(interface{ Unwrap() sandbox.Sandbox }).Unwrap().(*hangMachine).call("grade")
			}
			bed := newBed(t, b, tt.agent)
			store, err := blob.Open(t.TempDir(), blob.Options{})
			if err != nil {
				t.Fatal(err)
			}
			bed.cfg.Provider, bed.cfg.Blobs = &hangs{in: tt.in}, store
			bed.cfg.Retry.Attempts = 2
			bed.run(t, t.Context())
			var all []record.Verdict
			for _, p := range bed.seen {
				if p.Kind == "verdict" {
					all = append(all, *p.Verdict)
				}
			}
			if len(all) != 2 || all[0].Status != tt.first || all[0].Final || all[1].Status != tt.last || !all[1].Final {
				t.Fatalf("%+v", all)
			}
			for _, v := range all {
				if v.Error == nil || v.Error.Phase != tt.phase || v.Error.Status != v.Status {
					t.Fatalf("error %+v, want one in phase %s", v.Error, tt.phase)
				}
				r, err := store.Open(t.Context(), v.Error.Detail)
				if err != nil {
					t.Fatal(err)
				}
				text, _ := io.ReadAll(r)
				r.Close()
				if string(text) != "goroutine 1 [running]" {
					t.Errorf("detail %q", text)
				}
			}
			last := all[1]
			if zero := slices.Contains(last.Flags, benchmarks.FlagNoReward) && last.End == record.Broke &&
				last.Reward != nil && *last.Reward == 0; zero != (tt.last == record.Scored) {
				t.Errorf("%+v", last)
			}
		})
	}
}

// A timeout while the agent's processes are in the sandbox is retried, and the last attempt scores
// 0. If no process of the agent is left, it is an infrastructure failure.
func TestTooSlow(t *testing.T) {
	for _, tt := range []struct {
		in   string
		live bool
		idle bool
		last record.Status
	}{
		{"kill", false, false, record.Scored},
		{"kill", false, true, record.Infra},
		{"collect", false, false, record.Infra}, // all processes were killed before
		{"collect", true, false, record.Scored},
		{"grade", true, false, record.Scored},
		{"grade", true, true, record.Grader},
	} {
		t.Run(fmt.Sprintf("%s, live %v, idle %v", tt.in, tt.live, tt.idle), func(t *testing.T) {
			spec := sandbox.Spec{}
			var sb sandbox.Sandbox
			b := &toy{tasks: 1,
				needs: func(int) benchmarks.Needs {
					return benchmarks.Needs{Agent: []sandbox.Spec{spec}, GradeLive: tt.live}
				},
				opens: func(h benchmarks.Host) (err error) {
					sb, err = h.Sandbox(context.Background(), spec)
					return err
				},
				wrap: func(e benchmarks.Episode) benchmarks.Episode {
					return &slowEpisode{hangEpisode: &hangEpisode{e, sb}, in: tt.in, leave: tt.live}
				},
			}
			b.grade = func(ctx context.Context, _ benchmarks.Evidence,
				_ benchmarks.Episode) (benchmarks.Result, error) {
				v := 1.0
				return benchmarks.Result{Scores: []record.Score{{Name: "x", Primary: true, Value: &v}}},
					late(ctx, tt.in == "grade", sb)
			}
			bed := newBed(t, b, agent.Func(func(ctx context.Context, s *agent.Session) (agent.Answer, error) {
				m, ok := agent.As[agent.Machine](s.Env)
				if !ok {
					return agent.Answer{}, errors.New("no machine")
				}
				if !tt.idle {
					if _, err := m.Exec(ctx, sandbox.Command{Args: []string{"true"}}); err != nil {
						return agent.Answer{}, err
					}
				}
				return agent.Answer{Parts: event.Text("right")}, nil
			}))
			store, err := blob.Open(t.TempDir(), blob.Options{})
			if err != nil {
				t.Fatal(err)
			}
			bed.cfg.Provider, bed.cfg.Blobs = &hangs{}, store
			bed.cfg.Retry.Attempts = 2
			bed.cfg.Phases.Collect, bed.cfg.Phases.Grade = 10*time.Millisecond, 10*time.Millisecond
			bed.run(t, t.Context())
			var all []record.Verdict
			for _, p := range bed.seen {
				if p.Kind == "verdict" {
					all = append(all, *p.Verdict)
				}
			}
			if len(all) != 2 || all[0].Status == record.Scored || all[1].Status != tt.last {
				t.Fatalf("%+v", all)
			}
			if last := all[1]; tt.last == record.Scored &&
				(last.End != record.Broke || last.Reward == nil || *last.Reward != 0) {
				t.Errorf("%+v", last)
			}
		})
	}
}

// late returns the error of an operation whose context has ended.
func late(ctx context.Context, yes bool, sb sandbox.Sandbox) error {
	if !yes {
		return nil
	}
	<-ctx.Done()
	return &sandbox.Error{Op: "get", ID: sb.ID(), Err: context.Cause(ctx)}
}

// A slowEpisode uses up all its time in one of its calls.
type slowEpisode struct {
	*hangEpisode
	in    string
	leave bool
}

func (e *slowEpisode) Started() sandbox.Sandbox { return &slowMachine{e.sb, e.in == "kill"} }
func (e *slowEpisode) Next(ctx context.Context, prev *benchmarks.Result) (*benchmarks.Stage, error) {
	s, err := e.Episode.Next(ctx, prev)
	if s != nil {
		s.Leave = e.leave
	}
	return s, err
}
func (e *slowEpisode) Collect(ctx context.Context, ans agent.Answer) (benchmarks.Evidence, error) {
	if err := late(ctx, e.in == "collect", e.sb); err != nil {
		return benchmarks.Evidence{}, err
	}
	return e.Episode.Collect(ctx, ans)
}

type slowMachine struct {
	sandbox.Sandbox
	slow bool
}

func (m *slowMachine) KillAll(ctx context.Context) error { return late(ctx, m.slow, m) }
