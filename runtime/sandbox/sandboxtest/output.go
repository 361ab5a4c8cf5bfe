package sandboxtest

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/runtime/sandbox/sandboxtest/verb"
)

var outputTests = []test{
	{name: "output/binary", run: func(t *testing.T, b *box) {
		m := b.open()
		want := string(verb.AllBytes(300))
		r := m.run("bytes", "300", ",", "bytes", "-err", "2")
		if r.Out != want || r.Err != string(verb.AllBytes(2)) {
			t.Errorf("got %s and %s", short(r.Out), short(r.Err))
		}
		if r.Exit.Out != int64(len(want)) || r.Exit.Err != 512 {
			t.Errorf("counted %d and %d, want %d and 512", r.Exit.Out, r.Exit.Err, len(want))
		}
	}},
	{name: "output/large", run: func(t *testing.T, b *box) {
		m := b.open()
		const n = 16<<20 + 5
		if r := m.run("spam", fmt.Sprint(n)); r.Out != pattern(n) || r.Exit.Out != n {
			t.Errorf("got %s, counted %d", short(r.Out), r.Exit.Out)
		}
	}},
	{name: "output/one-pipe", run: func(t *testing.T, b *box) {
		m := b.open()
		var out, want bytes.Buffer
		for i := range 500 {
			fmt.Fprintf(&want, "out %d\nerr %d\n", i, i)
		}
		c := m.command("turns", "500")
		c.Stdout = &out
		e, err := m.Exec(b.ctx(), c)
		if err != nil {
			t.Fatal(err)
		}
		if out.String() != want.String() {
			t.Errorf("not in the order of printing: %s", short(out.String()))
		}
		if e.Out != int64(want.Len()) || e.Err != 0 {
			t.Errorf("counted %d and %d, want %d and 0", e.Out, e.Err, want.Len())
		}
		// Nobody listens: it is still counted.
		if e, err := m.Exec(b.ctx(), m.command("spam", "5000000")); err != nil || e.Out != 5000000 || e.Code != 0 {
			t.Errorf("nil Stdout: %+v, error %v", e, err)
		}
	}},
	{name: "output/live", run: func(t *testing.T, b *box) {
		// The first line is handed on while the command still runs.
		m := b.open()
		seen := make(chan string, 10)
		c := m.command("echo", "first", ",", "hold", "/tmp/a")
		c.Stdout = writerFunc(func(p []byte) (int, error) { seen <- string(p); return len(p), nil })
		done := make(chan struct{})
		go func() { defer close(done); m.Exec(b.ctx(), c) }()
		select {
		case got := <-seen:
			if got != "first\n" {
				t.Errorf("got %q", got)
			}
		case <-time.After(patience):
			t.Error("nothing came while the command ran")
		}
		if err := m.KillAll(b.ctx()); err != nil {
			t.Error(err)
		}
		<-done
	}},
	{name: "output/limit", run: func(t *testing.T, b *box) {
		m := b.open()
		for _, tt := range []struct{ limit, n int64 }{{1000, 999}, {1000, 1000}, {1000, 1001}, {1000, 500},
			{1001, 100000}, {65536, 8 << 20}, {2, 3}} {
			c := m.command("spam", fmt.Sprint(tt.n), ",", "spam", "-err", "10")
			c.Limit = tt.limit
			r := m.exec(c)
			if r.Exit.Out != tt.n || r.Exit.Err != 10 {
				t.Errorf("limit %d of %d: counted %d and %d", tt.limit, tt.n, r.Exit.Out, r.Exit.Err)
			}
			if r.Err != pattern(min(10, tt.limit)) && tt.limit >= 10 {
				t.Errorf("limit %d: stderr %q", tt.limit, r.Err)
			}
			if err := checkCut(r.Out, tt.n, tt.limit); err != nil {
				t.Errorf("limit %d of %d: %v", tt.limit, tt.n, err)
			}
			if cut := tt.n > tt.limit || tt.limit < 10; cut != (r.Full != "") {
				t.Errorf("limit %d of %d: Exit.Full is %q", tt.limit, tt.n, r.Full)
			}
		}
	}},
	{name: "output/full", run: func(t *testing.T, b *box) {
		m := b.open()
		c := m.command("spam", "300000")
		c.Limit = 100
		c.FullLimit = 1 << 20
		r := m.exec(c)
		if r.Full == "" {
			t.Fatal("no Exit.Full")
		}
		if got := m.ok("cat", r.Full); got != pattern(300000) {
			t.Errorf("the whole output: got %s", short(got))
		}
		c.FullLimit = 5000
		r = m.exec(c)
		if r.Exit.Out != 300000 {
			t.Errorf("counted %d", r.Exit.Out)
		}
		if got := m.ok("cat", r.Full); !strings.HasPrefix(got, pattern(5000)[:4000]) || len(got) > 5200 {
			t.Errorf("kept up to 5000 bytes: got %s", short(got))
		}
		c.FullLimit = -1
		if r = m.exec(c); r.Full != "" {
			t.Errorf("nothing to be kept: Exit.Full is %q", r.Full)
		}
	}},
	{name: "output/writers", run: func(t *testing.T, b *box) {
		m := b.open()
		// A slow writer slows the command, and loses nothing.
		var got bytes.Buffer
		c := m.command("spam", "2000000")
		c.Stdout = writerFunc(func(p []byte) (int, error) {
			time.Sleep(time.Millisecond)
			return got.Write(p)
		})
		if e, err := m.Exec(b.ctx(), c); err != nil || e.Out != 2000000 || got.String() != pattern(2000000) {
			t.Errorf("slow writer: %+v, error %v, %s", e, err, short(got.String()))
		}
		// A failing writer ends the transfer, not the command.
		c = m.command("spam", "2000000", ",", "write", "/tmp/after", "yes")
		n := 0
		c.Stdout = writerFunc(func(p []byte) (int, error) { n++; return 0, errors.New("this writer is full") })
		if e, err := m.Exec(b.ctx(), c); err != nil || e.Code != 0 || e.Out != 2000000 {
			t.Errorf("failing writer: %+v, error %v", e, err)
		}
		if n != 1 {
			t.Errorf("a writer that failed was called %d times, want once", n)
		}
		if got := m.ok("cat", "/tmp/after"); got != "yes" {
			t.Errorf("the command of a failing writer did not run to its end: %q", got)
		}
		// Two streams, one writer: never at the same time. The race detector and the counter both
		// look.
		inside := 0
		w := writerFunc(func(p []byte) (int, error) {
			if inside++; inside != 1 {
				t.Error("two writes at the same time")
			}
			time.Sleep(50 * time.Microsecond)
			inside--
			return len(p), nil
		})
		c = m.command("turns", "300")
		c.Stdout, c.Stderr = w, w
		if e, err := m.Exec(b.ctx(), c); err != nil || e.Out != e.Err {
			t.Errorf("two streams: %+v, error %v", e, err)
		}
	}},
	{name: "output/left-behind", run: func(t *testing.T, b *box) {
		// A process that stays and has our stdout does not keep Exec waiting; what it prints later
		// is dropped, and it does not die of that.
		m := b.open()
		for _, how := range []string{"child", "setsid", "double"} {
			file := "/tmp/" + how
			r := m.run("echo", "before", ",", "start", how, "keep", file)
			if r.Code != 0 || r.Out != "before\n" {
				t.Errorf("%s: %+v, %q", how, r.Exit, r.Out)
			}
			if !m.alive(file) {
				t.Errorf("%s: ended with its command, want it to stay", how)
			}
		}
		// This one prints 4 MiB, far more than a pipe holds, when nobody listens any more.
		m.start("setsid", "keep", "/tmp/printing", "sleep", "100ms", ";", "spam", "4194304", ";", "lock",
			"/tmp/survived")
		m.waitHeld("/tmp/survived")
	}},
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

var number = regexp.MustCompile(`\d+`)

// checkCut checks what was handed on of a pattern of n bytes under a limit: the first half, one
// line that says how much is left out, the last half.
func checkCut(got string, n, limit int64) error {
	all := pattern(n)
	if n <= limit {
		if got != all {
			return fmt.Errorf("got %s, want all of it", short(got))
		}
		return nil
	}
	half := limit / 2
	if !strings.HasPrefix(got, all[:half]) {
		return fmt.Errorf("does not begin with the first %d bytes: %s", half, short(got))
	}
	if !strings.HasSuffix(got, all[n-half:]) {
		return fmt.Errorf("does not end with the last %d bytes: %s", half, short(got))
	}
	if extra := int64(len(got)) - limit; extra > 200 {
		return fmt.Errorf("%d bytes more than the limit", extra)
	}
	middle := got[half : int64(len(got))-half]
	for _, left := range []int64{n - 2*half, n - 2*half - 1} { // an odd byte may be on either side
		for _, num := range number.FindAllString(middle, -1) {
			if num == fmt.Sprint(left) {
				return nil
			}
		}
	}
	return fmt.Errorf("the line in the middle, %q, does not say that %d bytes are left out", middle, n-2*half)
}
