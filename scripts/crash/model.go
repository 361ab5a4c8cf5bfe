package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/evalrun/evalrun/harness/record"
)

// A service simulates a model with OpenAI's chat completions API. Its replies depend only on the
// request, and its agents succeed only if each reply reaches the request that it belongs to.
type service struct {
	addr   string
	served atomic.Int64
	server *http.Server
}

func newService() (*service, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &service{addr: "http://" + l.Addr().String() + "/v1"}
	s.server = &http.Server{Handler: s}
	go s.server.Serve(l)
	return s, nil
}

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var req struct {
		Messages []struct {
			Role    string
			Content json.RawMessage
		}
		Tools []struct{}
	}
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil || len(req.Messages) == 0 {
		http.Error(w, "bad request", http.StatusBadRequest)
		return
	}
	time.Sleep(3 * time.Millisecond)
	goal, last := "", req.Messages[len(req.Messages)-1]
	for _, m := range req.Messages {
		if m.Role == "user" {
			goal = string(m.Content)
		}
	}
	message := map[string]any{"role": "assistant"}
	stop := "stop"
	call := func(name, args string) {
		stop = "tool_calls"
		message["tool_calls"] = []any{map[string]any{"id": fmt.Sprint("c", len(req.Messages)), "type": "function",
			"function": map[string]any{"name": name, "arguments": args}}}
	}
	switch {
	case len(req.Tools) == 0:
		message["content"] = "echo " + strings.Trim(string(last.Content), `"`)
	case last.Role == "tool":
		call("finish", `{"message":"`+answer(goal)+`"}`)
	default:
		call("execute_bash", `{"command":"echo hi"}`)
	}
	s.served.Add(1)
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(map[string]any{
		"id": "x", "object": "chat.completion", "model": "crash",
		"choices": []any{map[string]any{"index": 0, "finish_reason": stop, "message": message}},
		"usage":   map[string]any{"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110},
	})
}

// answer returns the answer that a stage's goal requires.
func answer(goal string) string {
	if strings.Contains(goal, "say no") {
		return "no"
	}
	return "yes"
}

// protocolAgent is an agent using docs/protocol.md. It asks four questions and answers correctly if
// each reply matches its question.
func protocolAgent(in io.Reader, out io.Writer) error {
	lines := bufio.NewReaderSize(in, 1<<20)
	var start struct {
		Stage int
		Goal  struct{ Parts []struct{ Text string } }
	}
	receive := func(v any) error {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return err
		}
		return json.Unmarshal(line, v)
	}
	if err := receive(&start); err != nil {
		return err
	}
	fmt.Fprintln(out, `{"type":"start","protocol":1,"name":"crash"}`)
	said := answer(start.Goal.Parts[0].Text)
	for i := range 4 {
		q := fmt.Sprintf("question %d of stage %d", i, start.Stage)
		fmt.Fprintf(out, `{"type":"model","id":%d,"messages":[{"role":"user","parts":[{"text":%q}]}]}`+"\n", i+1, q)
		var res struct {
			Reply struct{ Parts []struct{ Text string } }
		}
		if err := receive(&res); err != nil {
			return err
		}
		if len(res.Reply.Parts) != 1 || res.Reply.Parts[0].Text != "echo "+q {
			said = fmt.Sprintf("%q was answered %+v", q, res.Reply)
		}
	}
	b, err := json.Marshal(map[string]any{"type": "finish",
		"answer": map[string]any{"parts": []any{map[string]string{"text": said}}}})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s\n", b)
	_, err = io.Copy(io.Discard, in)
	return err
}

// paid returns the number of calls recorded as paid in a run's journal, and checks that the replies
// of an attempt have distinct IDs.
func paid(run string) (int64, error) {
	files, err := filepath.Glob(filepath.Join(run, "journal", "events", "*"))
	if err != nil {
		return 0, err
	}
	n := int64(0)
	seen := map[string]bool{}
	for _, name := range files {
		f, err := os.Open(name)
		if errors.Is(err, fs.ErrNotExist) { // it was packed in the meantime
			continue
		}
		if err != nil {
			return n, err
		}
		var r io.Reader = f
		if strings.HasSuffix(name, ".zst") {
			if r, err = zstd.NewReader(f); err != nil {
				f.Close()
				return n, err
			}
		}
		in := bufio.NewReaderSize(r, 1<<20)
		for {
			line, err := in.ReadBytes('\n')
			if err != nil {
				break
			}
			var l struct{ E record.Entry }
			var c record.Call
			if json.Unmarshal(line, &l) != nil || l.E.Kind != record.KindCall || json.Unmarshal(l.E.Data, &c) != nil ||
				c.Error != "" {
				continue
			}
			if c.From == "" {
				n++
			}
			if id := fmt.Sprint(l.E.Trial, "/", l.E.Attempt, "/", c.Reply); seen[id] {
				f.Close()
				return n, fmt.Errorf("%s: two calls have the reply %s", name, id)
			} else {
				seen[id] = true
			}
		}
		f.Close()
	}
	return n, nil
}

// charged checks that the summary counts each paid call exactly once, including those of killed
// attempts.
func charged(run string, paid int64) error {
	b, err := os.ReadFile(filepath.Join(run, "summary.json"))
	if err != nil {
		return err
	}
	var s struct {
		Arms []struct {
			Calls int64 `json:"model_calls"`
		}
	}
	if err := json.Unmarshal(b, &s); err != nil {
		return err
	}
	n := int64(0)
	for _, a := range s.Arms {
		n += a.Calls
	}
	if n != paid {
		return fmt.Errorf("the summary counts %d model calls, the journal has %d that were paid for", n, paid)
	}
	return nil
}
