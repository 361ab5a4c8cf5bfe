package cli

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/evalrun/evalrun/cmd/evalrun/builtin"

	"github.com/evalrun/evalrun/agent/model/modeltest"
)

// The first Ctrl-C of a run whose trials wait for a model says what for, and how to end at once.
func TestStopSaysWhy(t *testing.T) {
	for name, tt := range map[string]struct {
		fault modeltest.Fault
		says  string
	}{
		"throttled": {modeltest.RateSeconds(50 * time.Second),
			`openai/test throttles: \d calls? waits? \(rate, HTTP 429, until \d\d:\d\d:\d\d as it asked`},
		"longer": {modeltest.RateSeconds(200 * time.Second),
			`openai/test throttles: \d calls? waits? \(rate, HTTP 429, until \d\d:\d\d:\d\d as it asked`},
		"in flight": {modeltest.Slow(time.Hour), `1 call to openai/test in flight`},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, 1)
			signals := make(chan os.Signal, 3)
			srv := modeltest.NewServer(t, func(c modeltest.Call) modeltest.Reply {
				if c.N == 0 { // so that the trial has something to lose
					return modeltest.Reply{Text: "Let me think."}
				}
				return modeltest.Reply{Fault: tt.fault}
			})
			talk := &heard{}
			talk.on(func(text string) bool {
				return len(srv.Calls()) == 2 && (name == "in flight" || strings.Contains(text, `msg="model call"`))
			}, func() { signals <- os.Interrupt })
			talk.on(func(text string) bool { return strings.Contains(text, "stopping: ") },
				func() { signals <- os.Interrupt })
			stop := talk.listen()
			defer stop()
			args := []string{"--log-level", "debug", "run",
				b.config(fmt.Sprintf("model: {name: openai/test, base_url: %q}", srv.URL)), "-o",
				filepath.Join(b.dir, "run"), "--progress", "plain"}
			code := Main(System{Kinds: builtin.Kinds(), Args: args,
				Env: func(string) (string, bool) { return "", false }, Stdin: strings.NewReader(""), Stdout: io.Discard,
				Stderr:  talk,
				Signals: signals, Version: "test", Exit: func(int) {}})
			want := regexp.MustCompile(`stopping: 1 trial is being finished \(` + tt.says +
				`.*\); press Ctrl-C again to cut it off now`)
			if text := talk.text(); code != ExitStopped || !want.MatchString(text) {
				t.Errorf("exit %d, want %s in:\n%s", code, want, text)
			}
		})
	}
}

// heard is a stream that does something when what was written, or the world, is as somebody waits
// for.
type heard struct {
	mu    sync.Mutex
	b     strings.Builder
	steps []step
}

type step struct {
	is   func(text string) bool
	then func()
}

func (h *heard) on(is func(string) bool, then func()) { h.steps = append(h.steps, step{is, then}) }

func (h *heard) text() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.b.String()
}

func (h *heard) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.b.Write(p)
}

// listen takes the steps, one after the other, until they are done or stop is called.
func (h *heard) listen() (stop func()) {
	end := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for _, s := range h.steps {
			for !s.is(h.text()) {
				select {
				case <-end:
					return
				case <-time.After(5 * time.Millisecond):
				}
			}
			s.then()
		}
	})
	return func() { close(end); wg.Wait() }
}

// The third signal ends the program at once, whatever else goes on: here a terminal that never
// takes what is written to it.
func TestThirdSignal(t *testing.T) {
	signals, exit := make(chan os.Signal, 3), make(chan int, 1)
	end := make(chan struct{})
	defer close(end)
	writes := make(chan struct{}, 1)
	a := &app{System: System{Signals: signals, Exit: func(code int) { exit <- code },
		Stderr: writer(func([]byte) (int, error) {
			writes <- struct{}{}
			<-end
			return 0, io.ErrClosedPipe
		})}}
	a.progress = &late{a: a}
	over := make(chan struct{})
	defer close(over)
	go a.watch(over)
	s := a.stopper(t.Context(), a.progress)
	signals <- os.Interrupt
	<-writes // the first one hangs in its message
	signals <- syscall.SIGTERM
	signals <- os.Interrupt
	if code := <-exit; code != ExitStopped {
		t.Errorf("exit code %d", code)
	}
	if s.ctx.Err() != nil {
		t.Error("the second signal was handled: the first one did not hang")
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }
