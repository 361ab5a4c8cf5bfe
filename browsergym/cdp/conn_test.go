package cdp

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
)

// browser is the other side of a Conn, answered by f; nil is no answer.
func browser(t *testing.T, f func(m message) []string) *Conn {
	t.Helper()
	ours, theirs := io.Pipe()
	answers, w := io.Pipe()
	go func() {
		defer w.Close()
		r := bufio.NewReader(ours)
		for {
			b, err := r.ReadBytes(0)
			if err != nil {
				return
			}
			var m message
			if err := json.Unmarshal(b[:len(b)-1], &m); err != nil {
				t.Errorf("we sent %q: %v", b, err)
				return
			}
			for _, s := range f(m) {
				if s == "die" {
					return
				}
				w.Write(append([]byte(s), 0))
			}
		}
	}()
	c := NewConn(answers, theirs)
	t.Cleanup(func() { c.Close(); ours.Close(); answers.Close() })
	return c
}

func TestConn(t *testing.T) {
	var mu sync.Mutex
	var seen []string
	c := browser(t, func(m message) []string {
		switch m.Method {
		case "echo":
			return []string{fmt.Sprintf(`{"id":%d,"result":{"params":%s,"session":%q},"sessionId":"s,\"1"}`, m.ID,
				m.Params, m.Session)}
		case "plain":
			return []string{fmt.Sprintf(`{"id":%d,"result":{"a":{}},"sessionId":"AB"}`, m.ID)}
		case "refuse":
			return []string{`{"method":"happened","sessionId":"s","params":{"n":1}}`, `nonsense`,
				fmt.Sprintf(`{"id":%d,"error":{"code":-32000,"message":"no"}}`, m.ID)}
		case "die":
			return []string{"die"}
		}
		return nil
	})
	c.Handle("s", func(method string, params []byte) {
		mu.Lock()
		seen = append(seen, method+string(params))
		mu.Unlock()
	})
	ctx := t.Context()
	c.Handle(`s,"1`, func(string, []byte) {})
	c.Handle("AB", func(string, []byte) {})
	res, err := c.Call(ctx, `s,"1`, "echo", map[string]any{"x": "a\x00b"})
	if err != nil || !strings.Contains(string(res), `"x":"a\u0000b"`) {
		t.Errorf("echo: %s, %v", res, err)
	}
	if res, err := c.Call(ctx, "AB", "plain", nil); err != nil || string(res) != `{"a":{}}` {
		t.Errorf("plain: %s, %v", res, err)
	}
	var refused *Error
	if _, err := c.Call(ctx, "", "refuse", nil); !errors.As(err, &refused) || err.Error() != "refuse: no" {
		t.Errorf("refuse: %v", err)
	}
	mu.Lock()
	if len(seen) != 1 || seen[0] != `happened{"n":1}` {
		t.Errorf("events %q", seen)
	}
	mu.Unlock()
	short, cancel := context.WithCancelCause(ctx)
	cancel(errors.New("enough"))
	if _, err := c.Call(short, "", "silence", nil); err == nil || err.Error() != "silence: enough" {
		t.Errorf("a call whose context ended: %v", err)
	}
	p, err := c.Start("s", "silence", nil)
	if err != nil {
		t.Fatal(err)
	}
	c.Handle("s", nil)
	if _, err := p.Wait(ctx); !errors.Is(err, ErrGone) {
		t.Errorf("a call of a page that is gone: %v", err)
	}
	if _, err := c.Call(ctx, "", "die", nil); !errors.Is(err, ErrClosed) {
		t.Errorf("a browser that died: %v", err)
	}
	if _, err := c.Call(ctx, "", "echo", nil); !errors.Is(err, ErrClosed) {
		t.Errorf("a call after its death: %v", err)
	}
}

// TestLongMessages: an answer that is too long hurts who has asked for it alone.
func TestLongMessages(t *testing.T) {
	was := maxMessage
	maxMessage = 1 << 20
	t.Cleanup(func() { maxMessage = was })
	c := browser(t, func(m message) []string {
		if m.Method == "long" {
			return []string{fmt.Sprintf(`{"id":%d,"result":{"a":"%s"}}`, m.ID, strings.Repeat("x", 3<<20))}
		}
		return []string{fmt.Sprintf(`{"method":"%s"}`, strings.Repeat("y", 2<<20)),
			fmt.Sprintf(`{"id":%d,"result":{}}`, m.ID)}
	})
	if _, err := c.Call(context.Background(), "", "long", nil); !errors.Is(err, ErrLarge) {
		t.Errorf("a long answer: %v", err)
	}
	if raw, err := c.Call(context.Background(), "", "short", nil); err != nil || string(raw) != "{}" {
		t.Errorf("the next one: %s, %v", raw, err)
	}
}
