package main

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/model/modeltest"
)

// spoilt are replies that nobody can use. The service says what they took: $0.02 each, at in 1, out
// 10.
var spoilt = map[string]modeltest.Fault{
	"nochoices": modeltest.Body("application/json",
		`{"id":"x","object":"chat.completion","created":1,"model":"m","choices":[],`+took+`}`),
	"nomessage": modeltest.Body("application/json",
		`{"id":"x","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"finish_reason":"stop"}],`+
			took+`}`),
	"filtered": modeltest.Body("application/json",
		`{"id":"x","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"finish_reason":"content_filter","message":{"role":"assistant","content":null}}],`+took+`}`),
	"cut": modeltest.Body("application/json",
		`{"id":"x","object":"chat.completion",`+took+`,"choices":[{"index":0,"mess`),
	"failed": modeltest.RawStatus(500, `{"error":{"message":"it broke"},`+took+`}`),
	"stream": modeltest.Body("text/event-stream",
		`data: {"choices":[{"delta":{"content":"hel"}}],"usage":null}`+"\n\n"+`data: {"choices":[],`+took+"}\n\n"),
}

// odd are replies that a service would not give.
var odd = map[string]modeltest.Fault{
	"list":      modeltest.Body("application/json", `[{"choices":[]}]`),
	"text-cost": answered(`"2"`, `{"prompt_tokens":1,"completion_tokens":1,"cost":"0.02"}`),
	"no-cost":   answered(`"2"`, `{"prompt_tokens":1,"completion_tokens":1,"cost":{"usd":5}}`),
	"parts": answered(`[{"type":"thinking","thinking":[{"type":"text","text":"3?"}]},{"type":"text","text":"2"}]`,
		`{"prompt_tokens":1,"completion_tokens":1}`),
	"number":      answered(`2`, `{"prompt_tokens":1,"completion_tokens":1}`),
	"minus-total": answered(`"2"`, `{"prompt_tokens":100,"completion_tokens":10,"total_tokens":-9223372036854775808}`),
}

func answered(content, usage string) modeltest.Fault {
	return modeltest.Body("application/json",
		`{"id":"x","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":`+
			content+`}}],"usage":`+usage+`}`)
}

const took = `"usage":{"prompt_tokens":10000,"completion_tokens":1000,"total_tokens":11000}`

// TestMoney runs scripts beside a server whose models never finish a task, and say in different
// ways what a reply took. Each of its replies is a line in the file calls, so that a script can
// count them.
func TestMoney(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/money", UpdateScripts: *update, RequireExplicitExec: true, RequireUniqueNames: true,
		Setup: func(env *testscript.Env) error {
			var mu sync.Mutex
			calls := filepath.Join(env.WorkDir, "calls")
			if err := os.WriteFile(calls, nil, 0o644); err != nil {
				return err
			}
			s := modeltest.NewServer(t, func(c modeltest.Call) modeltest.Reply {
				mu.Lock()
				defer mu.Unlock()
				f, err := os.OpenFile(calls, os.O_WRONLY|os.O_APPEND, 0o644)
				if err == nil {
					fmt.Fprintln(f, c.Body.Model)
					err = f.Close()
				}
				if err != nil {
					t.Error(err)
				}
				r := modeltest.Reply{Calls: []event.ReplyCall{
					{ID: fmt.Sprint("c", c.N), Name: "execute_bash", Args: fmt.Sprintf(`{"command": "echo %d"}`, c.N)}}}
				switch c.Body.Model {
				case "cached": // by the rule $0.10 each, at in 1, out 10
					r.Usage = event.Usage{In: 9_990, Cached: 9_990, Out: 10}
				case "plain": // $0.01 each, at in 1, out 10
					r.Usage = event.Usage{In: 9_990, Out: 1}
				case "mute":
				case "inputs":
					r.Usage = event.Usage{In: 10_000}
				case "slow":
					r.Fault = modeltest.Slow(time.Hour)
				case "locked":
					r.Fault = modeltest.BadKey
				default:
					if r.Fault = spoilt[c.Body.Model]; r.Fault == nil {
						r.Fault = odd[c.Body.Model]
					}
				}
				return r
			})
			env.Setenv("SERVICE", s.URL)
			env.Setenv("OPENAI_API_KEY", "")
			env.Setenv("HOME", env.WorkDir)
			return nil
		},
	})
}
