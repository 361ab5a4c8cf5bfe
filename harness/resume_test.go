package harness_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/model"
	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/harness"
	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// An asker sends its model n questions, each through a new client as a protocol agent does, and
// answers with the replies. After a number of questions it calls after, which may end the run.
func asker(n int, after func(q int)) agent.Agent {
	return agent.Func(func(ctx context.Context, s *agent.Session) (agent.Answer, error) {
		var told string
		for q := range n {
			m, err := s.Model("main")
			if err != nil {
				return agent.Answer{}, err
			}
			resp, err := m.Generate(ctx,
				&model.Request{Messages: []model.Message{
					{Role: "user", Parts: event.Text(fmt.Sprint("question ", q))}}})
			if err != nil {
				return agent.Answer{}, err
			}
			told += event.PlainText(resp.Parts) + ";"
			after(q)
		}
		return agent.Answer{Parts: event.Text(told)}, nil
	})
}

// echo replies with the question and counts the questions.
func echo(asked *[]string) model.Factory {
	return replies(func(_ model.Binding, req *model.Request) (*model.Response, error) {
		q := event.PlainText(req.Messages[0].Parts)
		*asked = append(*asked, q)
		return &model.Response{Parts: event.Text("echo: " + q)}, nil
	})
}

// A run stopped in the middle of an agent's questions continues with the paid replies, each for its
// question.
func TestRepliesGoToTheirQuestions(t *testing.T) {
	for _, stages := range []int{1, 2} {
		t.Run(fmt.Sprint(stages, " stages"), func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			var asked []string
			stage := 0
			b := newBed(t, &toy{tasks: 1, stages: stages}, asker(4, func(q int) {
				if q == 3 {
					if stage++; stage == stages {
						stop()
					}
				}
			}))
			b.cfg.Arms[0].Model = echo(&asked)
			b.run(t, ctx)
			if want := 4 * stages; len(asked) != want || len(b.verdicts(t)) != 0 {
				t.Fatalf("%d questions, verdicts %v; want %d and none", len(asked), b.verdicts(t), want)
			}
			b.run(t, t.Context())
			want := "echo: question 0;echo: question 1;echo: question 2;echo: question 3;"
			v := b.verdicts(t)["arm0/t0"]
			if v.Answer != want || len(asked) != 4*stages {
				t.Errorf("answer %q after %d questions, want %q after %d", v.Answer, len(asked), want, 4*stages)
			}
			if v.Turns != int64(4*stages) || v.Spent.Calls != 0 {
				t.Errorf("%d turns, %d calls paid again", v.Turns, v.Spent.Calls)
			}
			// Every reply of an attempt has a unique ID, and each call refers to its own reply.
			ids, calls := map[string]int{}, map[string]int{}
			for _, e := range b.j.Entries() {
				switch e.Kind {
				case record.KindCall:
					var c record.Call
					if err := json.Unmarshal(e.Data, &c); err != nil {
						t.Fatal(err)
					}
					calls[fmt.Sprint(e.Attempt, "/", c.Reply)]++
				case record.KindEvent:
					ev, err := event.Default.Decode(e.Data)
					if err != nil {
						t.Fatal(err)
					}
					if r, ok := ev.Body.(event.Reply); ok {
						ids[fmt.Sprint(e.Attempt, "/", r.ID)]++
					}
				}
			}
			if !reflect.DeepEqual(ids, calls) || len(ids) != 8*stages {
				t.Errorf("replies %v, calls %v", ids, calls)
			}
		})
	}
}

// Attempts that failed through no fault of the agent leave their replies to the next attempt,
// within a run and after a resume.
func TestFailedAttemptsLeaveTheirReplies(t *testing.T) {
	for _, c := range []struct {
		name  string
		fails int // number of attempts that fail after their questions
		runs  int
	}{{"retried", 2, 1}, {"resumed", 3, 2}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var asked []string
				failed := 0
				b := newBed(t, &toy{tasks: 1}, nil)
				b.cfg.Arms[0].Agent = agents(
					agent.Func(func(ctx context.Context, s *agent.Session) (agent.Answer, error) {
						ans, err := asker(3, func(int) {}).Run(ctx, s)
						if failed++; err == nil && failed <= c.fails {
							m, _ := s.Model("other")
							_, err = m.Generate(ctx, &model.Request{})
						}
						return ans, err
					}))
				ask := echo(&asked)
				b.cfg.Arms[0].Model = func(bind model.Binding) (model.Client, error) {
					if bind.Role == "other" {
						return clientFunc(func(context.Context, *model.Request) (*model.Response, error) {
							return nil, &model.Error{Class: model.Overload, Err: errors.New("busy")}
						}), nil
					}
					return ask(bind)
				}
				for range c.runs {
					b.run(t, t.Context())
				}
				past := b.past()
				for id, p := range past {
					if !p.Decided || p.Status != record.Scored {
						t.Errorf("trial %s: %+v", id, p)
					}
				}
				if len(asked) != 3 {
					t.Errorf("%d questions were paid for, want 3", len(asked))
				}
			})
		})
	}
}

// A trial that is not retried only because the run ends stays undecided.
func TestStoppedTrialsStayOpen(t *testing.T) {
	for _, status := range []record.Status{record.Infra, record.Provider, record.Grader} {
		t.Run(string(status), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				drain := make(chan struct{})
				stopped := false
				fail := func() error {
					if !stopped {
						stopped = true
						close(drain)
						synctest.Wait()
					}
					return &sandbox.Error{Op: "create", Err: errors.New("no room")}
				}
				b := newBed(t, &toy{tasks: 1}, says("right", 0))
				works := false
				switch status {
				case record.Infra:
					b.cfg.Arms[0].Agent = agents(says("right", 1)) // a trial that has started
					b.toy.step = func(context.Context, event.Event) (benchmarks.Turn, error) {
						if works {
							return benchmarks.Turn{Obs: event.RunResult{}}, nil
						}
						return benchmarks.Turn{}, fail()
					}
				case record.Grader:
					b.toy.grade = func(ctx context.Context, ev evidenceOf, live episodeOf) (resultOf, error) {
						if works {
							return scored(1), nil
						}
						return resultOf{}, fail()
					}
				case record.Provider:
					b.cfg.Arms[0].Agent = agents(asker(1, func(int) {}))
					b.cfg.Arms[0].Model = replies(func(model.Binding, *model.Request) (*model.Response, error) {
						if works {
							return &model.Response{Parts: event.Text("right")}, nil
						}
						fail()
						return nil, &model.Error{Class: model.Overload, Err: errors.New("busy")}
					})
				}
				b.cfg.Drain = drain
				sum := b.run(t, t.Context())
				if sum.Final != 0 || len(b.verdicts(t)) != 0 {
					t.Fatalf("decided after the drain: %+v", b.verdicts(t))
				}
				for _, p := range b.past() {
					if want := map[record.Status]int{record.Infra: 1, record.Grader: 1}[status]; p.Failed != want {
						t.Errorf("%d tries used, want %d", p.Failed, want)
					}
				}
				works = true
				b.cfg.Drain = nil
				b.run(t, t.Context())
				if v := b.verdicts(t)["arm0/t0"]; v.Status != record.Scored {
					t.Errorf("%+v", v)
				}
			})
		})
	}
}

// Infra tries count across resumes, and so does the run's retry budget.
func TestTriesCountThroughResumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, &toy{tasks: 1}, says("right", 0))
		opened := 0
		ctx, stop := context.WithCancel(t.Context())
		b.toy.open = func() error {
			if opened++; opened == 2 {
				stop()
				return context.Canceled
			}
			return &sandbox.Error{Op: "create", Err: errors.New("no room")}
		}
		b.cfg.Retry.Attempts = 3
		b.run(t, ctx)
		b.run(t, t.Context())
		if v := b.verdicts(t)["arm0/t0"]; v.Status != record.Infra || opened != 4 {
			t.Errorf("%+v after %d openings, want infra after 4: three failures and the one that was cut off", v,
				opened)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, &toy{tasks: 3, open: func() error {
			return &sandbox.Error{Op: "create", Err: errors.New("no room")}
		}}, says("right", 0))
		b.cfg.Workers = 1
		b.cfg.Retry = harness.Retry{Attempts: 3, Budget: 5, Used: 5}
		if sum := b.run(t, t.Context()); sum.Retries != 0 || sum.By[record.Infra] != 3 {
			t.Errorf("%+v", sum)
		}
	})
}

// A lease held by another process ends the attempt, not the run.
func TestLostLeaseEndsOneAttempt(t *testing.T) {
	b := newBed(t, &toy{tasks: 3}, says("right", 1))
	b.cfg.Workers = 1
	first := b.plan.Tasks[0]
	id := record.TrialID(b.plan.Arms[0].ID, first.Digest, 1)
	if err := b.j.Append(t.Context(), record.Entry{Trial: id, Attempt: 7, Fence: 99, Kind: record.KindAttempt,
		Data: []byte(`{}`)}); err != nil {
		t.Fatal(err)
	}
	q := jobsOf(b)
	sum, err := harness.Run(t.Context(), b.cfg, q, b.j)
	if err != nil || sum.By[record.Scored] != 2 {
		t.Errorf("%+v, %v", sum, err)
	}
}

// If a task changes during the run, its trial stays undecided.
func TestChangedTaskStaysOpen(t *testing.T) {
	b := newBed(t, &toy{tasks: 2}, says("right", 0))
	b.plan.Tasks[0].Digest = "another"
	sum := b.run(t, t.Context())
	if sum.Final != 1 || len(b.verdicts(t)) != 1 {
		t.Errorf("%+v, %v", sum, b.verdicts(t))
	}
	var last record.Verdict
	for _, e := range b.j.Entries() {
		var v record.Verdict
		if e.Kind == record.KindVerdict && json.Unmarshal(e.Data, &v) == nil && !v.Final {
			last = v
		}
	}
	if last.Status != record.Infra || last.Error == nil || last.Error.Class != "task" {
		t.Errorf("%+v", last)
	}
}

// A grading that has started when the run is stopped is finished.
func TestGradingOutlivesAStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		b := newBed(t, &toy{tasks: 1}, says("right", 0))
		b.toy.grade = func(ctx context.Context, ev evidenceOf, live episodeOf) (resultOf, error) {
			stop()
			synctest.Wait()
			return scored(1), ctx.Err()
		}
		b.run(t, ctx)
		if v := b.verdicts(t)["arm0/t0"]; v.Status != record.Scored || *v.Reward != 1 {
			t.Errorf("%+v", v)
		}
	})
}

// An interrupted rerun runs again; it does not grade earlier evidence of the trial.
func TestRerunDoesNotGradeOldEvidence(t *testing.T) {
	b := newBed(t, &toy{tasks: 1}, says("right", 0))
	b.toy.grade = func(context.Context, evidenceOf, episodeOf) (resultOf, error) {
		return resultOf{}, errors.New("broken")
	}
	b.cfg.Retry.Attempts = 1
	b.run(t, t.Context())
	ctx, stop := context.WithCancel(t.Context())
	b.cfg.Arms[0].Agent = agents(agent.Func(func(ctx context.Context, _ *agent.Session) (agent.Answer, error) {
		stop()
		return agent.Answer{}, context.Cause(ctx)
	}))
	b.rerun(t, ctx)
	b.toy.grade = nil
	b.cfg.Arms[0].Agent = agents(says("wrong", 0))
	b.run(t, t.Context())
	if p := b.past(); len(p) != 1 {
		t.Fatal(p)
	}
	var rewards []float64
	for _, e := range b.j.Entries() {
		var v record.Verdict
		if e.Kind == record.KindVerdict && json.Unmarshal(e.Data, &v) == nil && v.Reward != nil {
			rewards = append(rewards, *v.Reward)
		}
	}
	if !slices.Equal(rewards, []float64{0}) {
		t.Errorf("rewards %v: the evidence of before the rerun was graded", rewards)
	}
}
