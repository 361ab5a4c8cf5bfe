package harness_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/harness"
	"github.com/evalrun/evalrun/harness/plan"
	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// A visited is a provider of sandboxes whose commands and terminals copy their input to their output
// until it ends. One called "stay" stays until the context ends.
type visited struct {
	mu   sync.Mutex
	open int
}

func (v *visited) Acquire(context.Context, []sandbox.Spec) (sandbox.Lease, error) { return v, nil }
func (v *visited) Close() error                                                   { return nil }
func (v *visited) Sandbox(_ context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.open++
	return &visitedMachine{v: v, owner: spec.Owner}, nil
}

type visitedMachine struct {
	sandbox.Sandbox
	v     *visited
	owner sandbox.Owner
}

func (m *visitedMachine) ID() string                    { return "m1" }
func (m *visitedMachine) KillAll(context.Context) error { return nil }
func (m *visitedMachine) Close() error {
	m.v.mu.Lock()
	defer m.v.mu.Unlock()
	m.v.open--
	return nil
}

func (m *visitedMachine) copy(ctx context.Context, args []string, in io.Reader, out io.Writer) (sandbox.Exit, error) {
	if slices.Equal(args, []string{"stay"}) {
		<-ctx.Done()
		return sandbox.Exit{}, fmt.Errorf("%w", context.Cause(ctx))
	}
	io.Copy(out, in)
	return sandbox.Exit{Code: 4}, nil
}

func (m *visitedMachine) Exec(ctx context.Context, c sandbox.Command) (sandbox.Exit, error) {
	return m.copy(ctx, c.Args, c.Stdin, c.Stdout)
}

func (m *visitedMachine) Terminal(ctx context.Context, c sandbox.Terminal) (sandbox.Exit, error) {
	return m.copy(ctx, c.Args, c.Stdin, c.Stdout)
}

// visitedBench returns a benchmark whose episodes have such a sandbox.
func visitedBench() *toy {
	var mu sync.Mutex
	var last sandbox.Sandbox
	return &toy{tasks: 1,
		needs: func(int) benchmarks.Needs { return benchmarks.Needs{Agent: []sandbox.Spec{{}}} },
		opens: func(h benchmarks.Host) (err error) {
			mu.Lock()
			defer mu.Unlock()
			last, err = h.Sandbox(context.Background(), sandbox.Spec{})
			return err
		},
		wrap: func(e benchmarks.Episode) benchmarks.Episode {
			mu.Lock()
			defer mu.Unlock()
			return &visitedEpisode{e, last}
		},
	}
}

type visitedEpisode struct {
	benchmarks.Episode
	sb sandbox.Sandbox
}

func (e *visitedEpisode) Machine(context.Context) (sandbox.Sandbox, error) { return e.sb, nil }
func (e *visitedEpisode) Started() sandbox.Sandbox                         { return e.sb }
func (e *visitedEpisode) Dir() string                                      { return "/" }
func (e *visitedEpisode) Close() error                                     { return e.sb.Close() }

// touches returns the texts of the notes about visits.
func (b *bed) touches(t *testing.T) (out []string) {
	t.Helper()
	for _, e := range b.j.Entries() {
		if e.Kind != record.KindEvent {
			continue
		}
		ev, err := event.Default.Decode(e.Data)
		if err != nil {
			t.Fatal(err)
		}
		if i, ok := ev.Body.(event.Info); ok && i.What == record.Touched {
			out = append(out, i.Text)
		}
	}
	return out
}

// A split reader returns one of its parts at a time.
type split []string

func (s *split) Read(p []byte) (int, error) {
	if len(*s) == 0 {
		return 0, io.EOF
	}
	n := copy(p, (*s)[0])
	if (*s)[0] = (*s)[0][n:]; (*s)[0] == "" {
		*s = (*s)[1:]
	}
	return n, nil
}

// A visit is recorded, masked and flagged, and ends with the agent. The flag stays when the trial is
// graded again.
func TestVisit(t *testing.T) {
	here, end := make(chan struct{}), make(chan struct{})
	waits := agent.Func(func(context.Context, *agent.Session) (agent.Answer, error) {
		close(here)
		<-end
		return agent.Answer{Parts: event.Text("right")}, nil
	})
	prov := &visited{}
	b := newBed(t, visitedBench(), waits)
	live := new(harness.Live)
	b.cfg.Provider, b.cfg.Live, b.cfg.Mask = prov, live, harness.NewMasker("sesame-open", "two\nlines of it")
	if _, err := live.Enter(t.Context(), "none", harness.Visit{}, nil); !errors.Is(err, harness.ErrNotLive) {
		t.Errorf("before the run: %v", err)
	}
	done := make(chan harness.Summary)
	go func() { done <- b.run(t, t.Context()) }()
	<-here
	all := live.Trials()
	if len(all) != 1 || all[0].Machine != "m1" || all[0].Task != "toy/t0" {
		t.Fatalf("%+v", all)
	}
	trial := all[0].Trial

	typed := split{"ls\r", "echo sesa", "me-open\r", "two\r", "lines of it", "\x03"}
	var out strings.Builder
	began := 0
	x, err := live.Enter(t.Context(), trial, harness.Visit{By: "ann", Terminal: true, Stdin: &typed, Stdout: &out},
		func() {
			if began++; len(b.j.Synced()) == 0 || !strings.Contains(string(b.j.Synced()[len(b.j.Synced())-1].Data), "ann opened") {
				t.Error("the command begins before its note is durable")
			}
		})
	if x.Code != 4 || err != nil || began != 1 || !strings.Contains(out.String(), "sesame-open") {
		t.Errorf("%+v, %v, %q", x, err, out.String())
	}
	many := split{strings.Repeat("x", 30_000), strings.Repeat("y", 300_000)}
	if _, err := live.Enter(t.Context(), trial, harness.Visit{By: "bob", Args: []string{"cat", "sesame-open"},
		Stdin: &many, Stdout: io.Discard}, func() {}); err != nil {
		t.Error(err)
	}
	if _, err := live.Enter(t.Context(), trial, harness.Visit{By: "bob", Service: "db"}, func() {}); err == nil ||
		!strings.Contains(err.Error(), `no service "db"`) {
		t.Errorf("a service: %v", err)
	}
	// Several at once, up to a limit; one leaves by itself, the others end with the agent.
	const most = 16
	stays := make(chan error, most+1)
	inside := make(chan struct{}, most+1)
	ctx, leave := context.WithCancelCause(t.Context())
	for i := range most {
		go func() {
			c := t.Context()
			if i == 0 {
				c = ctx
			}
			_, err := live.Enter(c, trial, harness.Visit{By: "eve", Args: []string{"stay"}}, func() { inside <- struct{}{} })
			stays <- err
		}()
	}
	for range most {
		<-inside
	}
	if _, err := live.Enter(t.Context(), trial, harness.Visit{}, func() {}); !errors.Is(err, harness.ErrNotNow) {
		t.Errorf("one too many: %v", err)
	}
	gone := errors.New("gone")
	leave(gone)
	if err := <-stays; !errors.Is(err, gone) {
		t.Errorf("one who leaves: %v", err)
	}
	close(end)
	for range most - 1 {
		if err := <-stays; err == nil || !strings.Contains(err.Error(), "the agent has ended") {
			t.Errorf("when the agent has ended: %v", err)
		}
	}
	<-done
	if prov.open != 0 || len(live.Trials()) != 0 {
		t.Errorf("%d sandboxes, %v are left", prov.open, live.Trials())
	}
	told := b.touches(t)
	want := []string{"ann opened a shell in the sandbox",
		"ann typed: ls\necho <secret>\n<secret>\x03", "ann left (exit code 4)", "bob ran in the sandbox: cat <secret>"}
	if len(told) < 5 || !slices.Equal(told[:4], want) {
		t.Errorf("%q", told[:min(len(told), 6)])
	}
	n := 0
	for _, s := range told[4:] {
		if s, ok := strings.CutPrefix(s, "bob typed: "); ok {
			n += strings.Count(s, "x") + strings.Count(s, "y") - strings.Count(s, "by")
		}
	}
	if n != 256<<10 || !slices.Contains(told, "bob typed: 67856 bytes more, which are not recorded") {
		t.Errorf("%d bytes of what was typed are recorded", n)
	}
	v := b.verdicts(t)["arm0/t0"]
	if v.Status != record.Scored || *v.Reward != 1 || !slices.Equal(v.Flags, []string{record.Touched}) {
		t.Errorf("%+v", v)
	}
	for _, r := range b.regrade(t, harness.Regrading{Why: "again"}) {
		if !slices.Equal(r.Verdict.Flags, []string{record.Touched}) {
			t.Errorf("graded again: %q", r.Verdict.Flags)
		}
	}
	b.checkLog(t)
}

// A fresh sandbox is as the agent finds it; it belongs to no run, and nothing is recorded.
func TestFresh(t *testing.T) {
	b := newBed(t, visitedBench(), says("right", 0))
	prov := &visited{}
	b.cfg.Provider = prov
	b.cfg.Owner = sandbox.Owner{PID: 7}
	for job := range plan.Jobs(b.plan, nil, nil) {
		job.Attempt = 1
		gone := errors.New("gone")
		err := harness.Fresh(t.Context(), b.cfg, job, func(_ context.Context, sb sandbox.Sandbox) error {
			m, _ := sandbox.As[interface {
				sandbox.Terminaler
				KillAll(context.Context) error
			}](sb)
			if o := m.(*visitedMachine).owner; o.Run != "" || o.Role != "shell" || o.PID != 7 || prov.open != 1 {
				t.Errorf("%+v, %d open", o, prov.open)
			}
			return gone
		})
		if err == nil || err.Error() != "gone" || prov.open != 0 {
			t.Errorf("%v; %d sandboxes are left", err, prov.open)
		}
	}
	if n := len(b.j.Entries()); n != 0 {
		t.Errorf("%d entries in the journal", n)
	}
}
