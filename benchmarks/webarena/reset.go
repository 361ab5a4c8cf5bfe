package webarena

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/evalrun/evalrun/benchmarks"
)

// ready is a reset service's response when the sites have been restored.
const ready = "Ready for duty!"

// rounds tracks the current round. The first session of a new round resets the sites; other
// sessions wait for that.
type rounds struct {
	mu   sync.Mutex
	last int
	poll time.Duration // interval between requests to a reset service
}

// enter is called before a session of a round starts. The harness guarantees that no session of an
// earlier round is open.
func (r *rounds) enter(ctx context.Context, round int, reset func(context.Context) error) error {
	if round == 0 {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last != 0 && round > r.last {
		if err := reset(ctx); err != nil {
			return err
		}
	}
	r.last = max(r.last, round)
	return nil
}

// restore resets the sites and discards cached logins.
func (b *Benchmark) restore(ctx context.Context) error {
	r := b.o.Reset
	if r == nil || r.URL == "" && len(r.Command) == 0 {
		return nil
	}
	limit, err := r.limit()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it took longer than %v", limit))
	defer cancel()
	if r.URL != "" {
		err = b.resetByURL(ctx, strings.TrimRight(r.URL, "/"))
	} else {
		err = run(ctx, r.Command)
	}
	if err != nil {
		return fmt.Errorf("resetting the sites: %w", err)
	}
	b.logins.forget()
	return nil
}

func (b *Benchmark) resetByURL(ctx context.Context, base string) error {
	ask := func(path string) (int, string, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+path, nil)
		if err != nil {
			return 0, "", err
		}
		res, err := b.client.Do(req)
		if err != nil {
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			return 0, "", err
		}
		defer res.Body.Close()
		text, err := io.ReadAll(io.LimitReader(res.Body, 64<<10))
		return res.StatusCode, strings.TrimSpace(string(text)), err
	}
	switch code, _, err := ask("/reset"); {
	case err != nil:
		return err
	// 418 means that a reset is already running
	case code != http.StatusOK && code != http.StatusTeapot:
		return fmt.Errorf("GET %s/reset: %d %s", base, code, http.StatusText(code))
	}
	for {
		if _, text, err := ask("/status"); err == nil && text == ready {
			return nil
		} else if err != nil && ctx.Err() != nil {
			return err
		}
		if err := sleep(ctx, b.rounds.poll); err != nil {
			return err
		}
	}
}

// run runs a program of the user and waits for it. On timeout its whole process group is killed.
func run(ctx context.Context, args []string) error {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("%s: %w%s", args[0], err, tail(out.String()))
	}
	return nil
}

// tail returns the end of a program's output, for an error message.
func tail(s string) string {
	const most = 500
	if s = strings.TrimSpace(strings.ToValidUTF8(s, "�")); s == "" {
		return ""
	}
	if r := []rune(s); len(r) > most {
		s = "…" + string(r[len(r)-most:])
	}
	return "; it said: " + s
}

// begin prepares for a session: if it starts a new round, the sites are reset.
func (b *Benchmark) begin(ctx context.Context, o benchmarks.Options) error {
	return b.rounds.enter(ctx, o.Round, b.restore)
}
