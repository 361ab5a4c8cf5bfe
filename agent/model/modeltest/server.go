package modeltest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"testing"

	"github.com/evalrun/evalrun/agent/event"
)

// A Call is one request that a [Server] received.
type Call struct {
	N      int // from 0
	Header http.Header
	Raw    []byte
	Body   struct {
		Model    string `json:"model"`
		Messages []struct {
			Role       string          `json:"role"`
			Content    json.RawMessage `json:"content"`
			ToolCallID string          `json:"tool_call_id"`
			ToolCalls  []struct {
				ID       string `json:"id"`
				Function struct {
					Name      string `json:"name"`
					Arguments string `json:"arguments"`
				} `json:"function"`
			} `json:"tool_calls"`
		} `json:"messages"`
		Tools []struct {
			Function struct {
				Name string `json:"name"`
			} `json:"function"`
		} `json:"tools"`
	}
}

// A Reply is the response of a [Server].
type Reply struct {
	Text, Refusal, Reasoning string
	Calls                    []event.ReplyCall
	Stop                     string // "" means stop or tool_calls
	Usage                    event.Usage
	Fault                    Fault // may be nil
}

// A Server is an OpenAI-compatible server on the loopback interface.
type Server struct {
	URL string // the base URL, with /v1

	mu    sync.Mutex
	calls []Call
}

// NewServer starts a server that responds with the results of reply. It is closed at the end of the
// test.
func NewServer(t testing.TB, reply func(Call) Reply) *Server {
	s := &Server{}
	ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, reply) }))
	s.URL = ts.URL + "/v1"
	t.Cleanup(func() {
		ts.CloseClientConnections()
		ts.Close()
	})
	return s
}

// Replies responds to call n with replies[n], and to later calls with the last one.
func Replies(replies ...Reply) func(Call) Reply {
	return func(c Call) Reply { return replies[min(c.N, len(replies)-1)] }
}

// Calls returns the requests received so far.
func (s *Server) Calls() []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Call(nil), s.calls...)
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request, reply func(Call) Reply) {
	if r.URL.Path != "/v1/chat/completions" || r.Method != http.MethodPost {
		http.Error(w, `{"error":{"message":"no such end point","type":"invalid_request_error"}}`, http.StatusNotFound)
		return
	}
	c := Call{Header: r.Header.Clone()}
	c.Raw, _ = io.ReadAll(r.Body)
	if err := json.Unmarshal(c.Raw, &c.Body); err != nil {
		http.Error(w, `{"error":{"message":"not JSON","type":"invalid_request_error"}}`, http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	c.N = len(s.calls)
	s.calls = append(s.calls, c)
	s.mu.Unlock()
	rep := reply(c)
	ok := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Request-Id", fmt.Sprintf("req_%d", c.N))
		_, _ = w.Write(rep.json(c))
	})
	if rep.Fault != nil {
		rep.Fault(w, r, ok)
		return
	}
	ok(w, r)
}

func (r Reply) json(c Call) []byte {
	msg := map[string]any{"role": "assistant", "content": nil, "refusal": nil}
	if r.Text != "" {
		msg["content"] = r.Text
	}
	if r.Refusal != "" {
		msg["refusal"] = r.Refusal
	}
	if r.Reasoning != "" {
		msg["reasoning_content"] = r.Reasoning
	}
	var calls []any
	for _, tc := range r.Calls {
		calls = append(calls, map[string]any{
			"id": tc.ID, "type": "function", "function": map[string]any{"name": tc.Name, "arguments": tc.Args},
		})
	}
	stop := r.Stop
	if len(calls) > 0 {
		msg["tool_calls"] = calls
		if stop == "" {
			stop = "tool_calls"
		}
	}
	if stop == "" {
		stop = "stop"
	}
	u := r.Usage
	b, err := json.Marshal(map[string]any{
		"id": fmt.Sprintf("chatcmpl-%d", c.N), "object": "chat.completion", "created": 1700000000,
		"model":   c.Body.Model,
		"choices": []any{map[string]any{"index": 0, "message": msg, "finish_reason": stop, "logprobs": nil}},
		"usage": map[string]any{
			"prompt_tokens": u.In, "completion_tokens": u.Out, "total_tokens": u.In + u.Out,
			"prompt_tokens_details":     map[string]any{"cached_tokens": u.Cached, "cache_write_tokens": u.CacheWrite},
			"completion_tokens_details": map[string]any{"reasoning_tokens": u.Reasoning},
		},
	})
	if err != nil {
		panic(err) // cannot happen: only strings and numbers
	}
	return b
}

// Proxy starts a proxy to another server. It applies the fault plan(n) to request n, unless that is
// nil. It returns the proxy's base URL, which has the target's path. The proxy is closed at the end
// of the test.
func Proxy(t testing.TB, target string, plan func(n int) Fault) string {
	u, err := url.Parse(target)
	if err != nil {
		t.Fatalf("proxy: %v", err)
	}
	next := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(&url.URL{Scheme: u.Scheme, Host: u.Host})
	}}
	var mu sync.Mutex
	n := 0
	ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		f := plan(n)
		n++
		mu.Unlock()
		// The server notices that the caller has gone only after the body has been read.
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		if f != nil {
			f(w, r, next)
			return
		}
		next.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		ts.CloseClientConnections()
		ts.Close()
	})
	return ts.URL + u.Path
}

// Plan applies one fault per request, in order, and none after the last. A nil fault means none.
func Plan(faults ...Fault) func(n int) Fault {
	return func(n int) Fault {
		if n < len(faults) {
			return faults[n]
		}
		return nil
	}
}

// DeadURL returns a base URL at which no server listens.
func DeadURL(t testing.TB) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("dead host: %v", err)
	}
	defer l.Close()
	return "http://" + l.Addr().String() + "/v1"
}
