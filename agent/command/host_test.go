package command

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/agenttest"
	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/model"
	"github.com/evalrun/evalrun/agent/webtext"
	actions "github.com/evalrun/evalrun/browsergym/action"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// prelude are the words of the shell programs in these tests. hear puts the next line from evalrun
// into $L.
const prelude = `
say() { printf '%s\n' "$1"; }
hear() { IFS= read -r L; }
hello() { hear; START=$L; say '{"type":"start","protocol":1,"name":"test"}'; }
bye() { say '{"type":"finish","answer":{"parts":[{"text":"42"}]}}'; }
run() { say '{"type":"step","id":1,"kind":"run","body":{"command":"echo hi"}}'; hear; }
has() { case "$L" in *"$1"*) ;; *) echo "no $1 in $L" >&2; exit 9;; esac; }
`

func onHost(t *testing.T, script string, more m) agent.Agent {
	fields := m{"where": "host", "run": []string{"/bin/sh", "-c", prelude + script}}
	for k, v := range more {
		fields[k] = v
	}
	return config(t, fields).Agent(func(context.Context) (sandbox.Sandbox, error) { return newBox(t), nil })
}

type replies func(*model.Request) (*model.Response, error)

func (f replies) Info() model.Info {
	return model.Info{Vendor: "test", Name: "m1", Window: 1000, Tools: true}
}
func (f replies) Generate(_ context.Context, r *model.Request) (*model.Response, error) {
	return f(r)
}

var setup = agenttest.Setup{
	Goal: `say "hi"`, Run: func(ctx context.Context, r event.Run) (event.RunResult, error) {
		switch r.Command {
		case "echo hi":
			return event.RunResult{Output: "hi\n", OutBytes: 3}, nil
		case "slow":
			time.Sleep(200 * time.Millisecond)
			return event.RunResult{}, nil
		}
		return event.RunResult{Code: 127, Output: "not found"}, nil
	}, Seed: 7,
	Tools: []agent.Tool{
		{Name: "look", Description: "looks", Schema: json.RawMessage(`{"type":"object"}`)},
		{Name: "sh", Parse: func(args json.RawMessage) (event.Body, error) {
			var r event.Run
			if err := json.Unmarshal(args, &r); err != nil || r.Command == "" {
				return nil, errors.New("want a command")
			}
			return r, nil
		}},
	},
	Model: replies(func(r *model.Request) (*model.Response, error) {
		switch text := event.PlainText(r.Messages[len(r.Messages)-1].Parts); text {
		case "long":
			return nil, &model.Error{Class: model.Context, Err: errors.New("too long")}
		case "down":
			return nil, &model.Error{Class: model.Overload, HTTP: 503, Err: errors.New("busy")}
		default:
			return &model.Response{Model: "m1-now", Parts: event.Text("heard " + text),
				Usage: event.Usage{In: 3, Out: 2}}, nil
		}
	}),
}

// What the program sees of a stage that goes well.
func TestHost(t *testing.T) {
	for name, script := range map[string]string{
		"start": `hello; L=$START
			has '"type":"start","protocol":1,"goal":{"parts":[{"text":"say \"hi\""}]},"stage":1,"actor":"","seed":7,'
			has '"kinds":["think","finish","run"],"tools":[{"name":"look","description":"looks","schema":{"type":"object"}},{"name":"sh"}]'
			has '"model":{"vendor":"test","name":"m1","window":1000,"images":false,"tools":true}'
			has '"left":{"turns":null,"tokens":null,"usd":null,"time_ms":null},"options":{"a":1},"history":[],"history_from":0'
			bye`,
		"step": `hello
			say '{"type":"step","id":5,"kind":"run","body":{"command":"echo hi"},"timeout_ms":1000}'; hear
			has '{"type":"result","id":5,"event":{"id":1,"time":"'; has '"source":"environment","cause":0,'; has '"kind":"run","body":{"code":0,"output":"hi\n"'
			bye`,
		"tool":         `hello; say '{"type":"step","id":1,"kind":"tool","body":{"name":"look","args":{"a":1}}}'; hear; has '"kind":"tool"'; has '{\"a\":1}'; bye`,
		"parsed tool":  `hello; say '{"type":"step","id":1,"kind":"tool","body":{"name":"sh","args":{"command":"echo hi"}}}'; hear; has '"kind":"run"'; has 'hi\n'; bye`,
		"tool's no":    `hello; say '{"type":"step","id":1,"kind":"tool","body":{"name":"sh","args":{}}}'; hear; has '"kind":"error"'; has 'want a command'; bye`,
		"unknown tool": `hello; say '{"type":"step","id":1,"kind":"tool","body":{"name":"x"}}'; hear; has '"kind":"error"'; has 'no tool is called'; bye`,
		"unknown kind": `hello; say '{"type":"step","id":1,"kind":"vendor.x","body":{"b":1}}'; hear; has '"kind":"error"'; has unsupported; bye`,
		"think":        `hello; say '{"type":"step","id":1,"kind":"think","body":{"thought":"x"}}'; hear; has '"kind":"think"'; bye`,
		"model": `hello; say '{"type":"model","id":1,"messages":[{"role":"user","parts":[{"text":"ping"}]}],"params":{"temperature":0}}'; hear
			has '{"type":"result","id":1,"reply":{"id":"r1","role":"main","model":"m1-now","parts":[{"text":"heard ping"}],"usage":{"in":3,"out":2}},"left":{'; bye`,
		"model refuses": `hello; say '{"type":"model","id":1,"messages":[{"role":"user","parts":[{"text":"long"}]}]}'; hear
			has '{"type":"error","id":1,"error":{"class":"model","kind":"context","text":"model: context: too long"}}'; bye`,
		"note":       `hello; say '{"type":"note","id":1,"kind":"info","body":{"what":"plan"}}'; hear; has '"kind":"info","body":{"what":"plan"}'; bye`,
		"no answers": `hello; say '{"type":"note","id":1,"kind":"a.b","body":{"x":[1,"é"]}}'; hear; has '"body":{"x":[1,"é"]}'; bye`,
		"refusals": `hello
			no() { say "$1"; hear; has '"type":"error"'; has '"class":"request"'; has "$2"; }
			no '{"type":"step","id":1,"body":{}}' 'no kind'
			no '{"type":"step","id":1,"kind":"run","body":{"command":7}}' 'cannot unmarshal'
			no '{"type":"step","id":1,"kind":"run","body":{}}' 'want either command or args'
			no '{"type":"step","id":1,"kind":"think","body":{"text":"x"}}' 'unknown field'
			no '{"type":"step","id":1,"kind":"run","timeout":7}' 'unknown field \"timeout\"'
			no '{"type":"step","id":1,"kind":"run","timeout_ms":-1}' 'below 0'
			no '{"type":"step","id":1,"kind":"finish"}' 'a message of type finish'
			no '{"type":"model","id":1}' 'no messages'
			no '{"type":"model","id":1,"messages":[{"role":"me"}]}' 'known are system'
			no '{"type":"note","id":1,"kind":"reply","body":{}}' 'not for agents'
			no '{"type":"blob","id":1,"sha256":"../../x"}' 'no event of this session'
			no '{"type":"dance","id":1}' 'no such type'
			run; has '"output":"hi\n"'; bye`,
		"all at once":   `hello; for i in 1 2 3 4 5 6 7 8 9 10; do say "{\"type\":\"step\",\"id\":$i,\"kind\":\"run\",\"body\":{\"command\":\"echo hi\"}}"; done; bye; cat > /dev/null`,
		"environment":   `hello; env | sort | tr '\n' ' ' >&2; [ "$X,$LEFT_OUT" = "a b," ] && [ -n "$PATH" ] || exit 8; [ "$EVALRUN_PROTOCOL" = 1 ] || exit 7; bye`,
		"empty lines":   `hello; say ''; say '  '; bye`,
		"crlf":          `hear; printf '{"type":"start","protocol":1}\r\n'; bye`,
		"no line break": `hello; printf '{"type":"finish","answer":{"parts":[{"text":"42"}]}}'`,
		"talks on":      `hello; bye; yes`,
		"exit code":     `hello; bye; exit 3`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("LEFT_OUT", "x")
			s := agenttest.NewSession(setup)
			ans, err := onHost(t, script, m{"options": m{"a": 1}, "env": m{"X": "a b"}}).Run(t.Context(), s)
			if err != nil || ans.Text() != "42" {
				t.Errorf("Run: %+v, %v", ans, err)
			}
		})
	}
}

// The arm's prompt comes with start, and is absent where there is none.
func TestHostPrompt(t *testing.T) {
	for prompt, want := range map[string]string{"Be <terse>.": `"prompt":"Be <terse>.","stage":1`,
		"": `"parts":[{"text":"say \"hi\""}]},"stage":1`} {
		c := config(t, m{"where": "host",
			"run": []string{"/bin/sh", "-c", prelude + `hello; L=$START; has '` + want + `'; bye`}})
		c.Prompt = prompt
		ag := c.Agent(func(context.Context) (sandbox.Sandbox, error) { return newBox(t), nil })
		if ans, err := ag.Run(t.Context(), agenttest.NewSession(setup)); err != nil || ans.Text() != "42" {
			t.Errorf("prompt %q: %+v, %v", prompt, ans, err)
		}
	}
}

// A host program that violates the protocol causes a Failure with a clear message.
func TestHostFailures(t *testing.T) {
	for name, c := range map[string]struct{ script, want string }{
		"exits at once": {`exit 0`, "it left with status 0 before it said start, after 0 lines of output"},
		"crashes": {`hello; echo 'Traceback: no' >&2; exit 1`,
			"it left with status 1 without finish, after 1 lines of output; its stderr ends: Traceback: no"},
		"crashes in a step": {`hello; run; kill -SEGV $$`,
			"it was ended by SIGSEGV without finish, after 2 lines"},
		"not JSON": {`hello; echo 'thinking…'`,
			`line 2 of its output is not JSON: "thinking\u2026"; its output is for messages alone, print to stderr`},
		"cut short": {`hello; printf '{"type":"fin'`,
			`line 2 of its output is not JSON: "{\"type\":\"fin"`},
		"not a message": {`hello; say '[1]'`, `line 2 of its output is not a message: "[1]"`},
		"no type":       {`hello; say '{"id":1}'`, `line 2 of its output is a message without type`},
		"no id": {`hello; say '{"type":"step","kind":"run"}'`,
			`line 2 of its output: "step" needs an id, a number from 1`},
		"text as id": {`hello; say '{"type":"step","id":"a"}'`, `line 2 of its output is not a message`},
		"NUL":        {`hello; printf 'a\000b\n'`, `line 2 of its output has a NUL byte: "a\x00b"`},
		"not UTF-8": {`hello; printf '{"type":"\377"}\n'`,
			`line 2 of its output is not UTF-8: "{\"type\":\"\xff\"}"`},
		"escape codes": {`hello; printf '\033[2J\n'; printf '\033]0;owned\007' >&2`,
			`line 2 of its output is not JSON: "\x1b[2J"`},
		"flood of bytes": {`hello; head -c 20000000 /dev/zero | tr '\0' a; sleep 100`,
			"line 2 of its output is longer than 16 MiB"},
		"flood of lines": {`hello; yes '{"type":"step","id":1,"kind":"think"}'`, `line `},
		"flood of slow requests": {`hello; yes '{"type":"step","id":1,"kind":"run","body":{"command":"slow"}}'`,
			`line 6`},
		"no start": {`run`, `line 1 of its output is "step"; the first message must be start`},
		"start twice": {`hello; say '{"type":"start","protocol":1}'`,
			`line 2 of its output: "start" needs an id`},
		"another version": {`say '{"type":"start","protocol":2}'`,
			"it speaks protocol 2, and this evalrun speaks 1 only"},
		"odd start": {`say '{"type":"start","protocol":1,"x":1}'`,
			`line 1 of its output: start: unknown field "x"`},
		"odd finish": {`hello; say '{"type":"finish","text":"42"}'`,
			`line 2 of its output: finish: unknown field "text"`},
		"blob as answer": {`hello; say '{"type":"finish","answer":{"parts":[{"blob":{"sha256":"00","size":1}}]}}'`,
			"line 2 of its output: finish: an answer is text"},
		"says nothing": {`sleep 1000`, "it did not say start within 300ms"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			more := m{}
			if name == "says nothing" {
				more["start"] = "300ms"
			}
			_, err := onHost(t, c.script, more).Run(t.Context(), agenttest.NewSession(setup))
			wantFailure(t, err, c.want)
			if strings.ContainsAny(fmt.Sprint(err), "\x1b\x00\n") {
				t.Errorf("the error has control characters: %q", err)
			}
		})
	}
}

// Limits and the end of the episode are told to the program, which may still finish.
func TestHostLimits(t *testing.T) {
	few := setup
	few.MaxSteps = 1
	ans, err := onHost(t, `hello; run; run
		has '{"type":"error","id":1,"error":{"class":"limit","kind":"steps","text":"limit reached: steps (1)"}}'; bye`,
		nil).Run(t.Context(), agenttest.NewSession(few))
	if !errors.As(err, new(*agent.LimitError)) || ans.Text() != "42" {
		t.Errorf("finish after a limit: %+v, %v", ans, err)
	}
	_, err = onHost(t, `hello; run; run; exit 1`, nil).Run(t.Context(), agenttest.NewSession(few))
	if !errors.As(err, new(*agent.LimitError)) {
		t.Errorf("exit after a limit: %v", err)
	}
	over := setup
	over.Step = func(context.Context, event.Event) (event.Body, error) { return event.RunResult{}, agent.ErrDone }
	ans, err = onHost(t, `hello; run; has '"done":true'; run; has '"class":"over"'; bye`, nil).Run(t.Context(),
		agenttest.NewSession(over))
	if err != nil || ans.Text() != "42" {
		t.Errorf("finish after the end: %+v, %v", ans, err)
	}
}

// What is not the program's fault is not blamed on it.
func TestHostOurs(t *testing.T) {
	broken := setup
	burnt := &sandbox.Error{Op: "exec", Err: errors.New("the machine burnt down")}
	broken.Step = func(context.Context, event.Event) (event.Body, error) { return nil, burnt }
	if _, err := onHost(t, `hello; run; bye`, nil).Run(t.Context(), agenttest.NewSession(broken)); !errors.Is(err,
		burnt) {
		t.Errorf("Run: %v, want the environment's error", err)
	}
	_, err := onHost(t, `hello; say '{"type":"model","id":1,"messages":[{"role":"user","parts":[{"text":"down"}]}]}'; hear; bye`, nil).
		Run(t.Context(), agenttest.NewSession(setup))
	if mod := new(model.Error); !errors.As(err, &mod) || mod.Class != model.Overload {
		t.Errorf("Run: %v, want the provider's error", err)
	}
	bad := config(t, m{"where": "host", "run": "true"}).Agent(
		func(context.Context) (sandbox.Sandbox, error) { return nil, burnt })
	if _, err := bad.Run(t.Context(), agenttest.NewSession(setup)); !errors.Is(err, burnt) {
		t.Errorf("Run: %v, want the machine's error", err)
	}
}

// A program that hangs, or that does not read, ends with the context.
func TestHostHangs(t *testing.T) {
	for name, script := range map[string]string{
		"before start":      `sleep 1000`,
		"closes its output": `hello; exec >&-; sleep 1000`,
		"after start":       `hello; sleep 1000`,
		"ignores":           `trap '' TERM INT HUP; hello; while :; do sleep 1; done`,
		"no reading": `hello; i=0; while [ $i -lt 60 ]; do i=$((i+1)); say "{\"type\":\"step\",\"id\":$i,\"kind\":\"tool\",\"body\":{\"name\":\"look\",\"args\":\"` +
			strings.Repeat("x", 5000) + `\"}}"; done; sleep 1000`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(500*time.Millisecond, func() { cancel(io.ErrNoProgress) })
			began := time.Now()
			_, err := onHost(t, script, nil).Run(ctx, agenttest.NewSession(setup))
			if err != io.ErrNoProgress {
				t.Errorf("Run: %v, want the context's cause", err)
			}
			if d := time.Since(began); d > 20*time.Second {
				t.Errorf("Run returned after %v", d)
			}
		})
	}
}

// A second stage runs in a new process, which is told about the first stage.
func TestHostStages(t *testing.T) {
	a := onHost(t, `hello; L=$START; case "$L" in
		*'"stage":1,'*) run; echo noise >&2; bye;;
		*) has '"stage":2,'; has '"history":[{"id":0,'; has '"command":"echo hi"'; has agent_stderr; bye;;
	esac`, nil)
	first := setup
	first.Log = &agenttest.Log{}
	for range 2 {
		if ans, err := a.Run(t.Context(), agenttest.NewSession(first)); err != nil || ans.Text() != "42" {
			t.Errorf("Run: %+v, %v", ans, err)
		}
	}
}

func TestHostBlob(t *testing.T) {
	s := setup
	s.Log = &agenttest.Log{}
	b, err := s.Log.PutBlob(t.Context(), "image/png", strings.NewReader("pixels"))
	if err != nil {
		t.Fatal(err)
	}
	for _, obs := range []event.Body{event.ToolResult{Parts: []event.Part{{Blob: &b}}}, event.Viewed{Blob: &b}} {
		s.Step = func(context.Context, event.Event) (event.Body, error) { return obs, nil }
		_, err = onHost(t, `hello; run; say '{"type":"blob","id":2,"sha256":"`+b.SHA256+`"}'; hear
			has '{"type":"result","id":2,"media_type":"image/png","data":"cGl4ZWxz"}'; bye`,
			nil).Run(t.Context(), agenttest.NewSession(s))
		if err != nil {
			t.Errorf("Run: %v", err)
		}
	}
}

// A program sees a page as text, and reads what is kept of it.
func TestHostBrowser(t *testing.T) {
	s := setup
	s.Log = &agenttest.Log{}
	shot, err := s.Log.PutBlob(t.Context(), "image/png", strings.NewReader("pixels"))
	if err != nil {
		t.Fatal(err)
	}
	ax, err := s.Log.PutBlob(t.Context(), "application/json",
		strings.NewReader(`{"nodes":[{"nodeId":"1","role":{"value":"button"},"name":{"value":"Buy"},"browsergym_id":"12"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	tool, err := webtext.Tool(actions.Options{Subsets: []string{"bid"}})
	if err != nil {
		t.Fatal(err)
	}
	s.Tools, s.Kinds = []agent.Tool{tool}, []string{"browse_interactive"}
	var codes []string
	s.Step = func(_ context.Context, e event.Event) (event.Body, error) {
		b, ok := e.Body.(event.Browse)
		if !ok {
			return event.Ack{Of: e.Body.Kind()}, nil
		}
		codes = append(codes, b.Code)
		return event.Browsed{URL: "http://shop/", AX: &ax, Screenshot: &shot}, nil
	}
	_, err = onHost(t, `hello; case "$START" in *'"name":"browser"'*"click(bid: str"*) ;; *) exit 8;; esac
		say '{"type":"step","id":1,"kind":"browse_interactive","body":{}}'; hear; has '"text":"[Current URL: http://shop/]'; has "[12] button 'Buy'"
		say '{"type":"step","id":2,"kind":"tool","body":{"name":"browser","args":{"code":"click(1)"}}}'; hear; has '"kind":"browse"'
		say '{"type":"blob","id":3,"sha256":"`+shot.SHA256+`"}'; hear; has '"data":"cGl4ZWxz"'; bye`,
		nil).Run(t.Context(), agenttest.NewSession(s))
	if err != nil || strings.Join(codes, ",") != ",click(1)" {
		t.Errorf("Run: %v, actions %q", err, codes)
	}
}

func TestHostSuite(t *testing.T) {
	agenttest.Run(t, agenttest.Suite{
		// It acts until it is told that there is no more, as a program in a loop would.
		New: func(t *testing.T) agent.Agent {
			return onHost(t, `hello; i=0; while [ $i -lt 60 ]; do i=$((i+1)); run; case "$L" in *'"output":"hi'*|*'"truncated":true'*|*'"type":"error"'*|*'"done":true'*) break;; esac; done; bye`, nil)
		},
		Setup: func(t *testing.T) agenttest.Setup { s := setup; s.Log = nil; return s },
	})
}

var update = flag.Bool("update", false, "write the transcript of docs/protocol.md anew")

// The transcript of docs/protocol.md is what is really said.
func TestTranscript(t *testing.T) {
	tape := t.TempDir() + "/tape"
	script := `tell() { printf '→ %s\n' "$L" >> ` + tape + `; }
		speak() { printf '← %s\n' "$1" >> ` + tape + `; say "$1"; }
		hear; tell; speak '{"type":"start","protocol":1,"name":"my-agent"}'
		speak '{"type":"model","id":1,"messages":[{"role":"user","parts":[{"text":"Say hi in the shell."}]}]}'; hear; tell
		speak '{"type":"step","id":2,"kind":"run","body":{"command":"echo hi"},"timeout_ms":5000}'; hear; tell
		speak '{"type":"step","id":3,"kind":"tool","body":{"name":"look","args":{"at":"the sky"}}}'; hear; tell
		speak '{"type":"step","id":4,"kind":"run","body":{"command":"ls"}}'; hear; tell
		speak '{"type":"step","id":5,"kind":"run","body":{"command":"echo hi"},"timeout":5}'; hear; tell
		speak '{"type":"note","id":6,"kind":"info","body":{"what":"plan","text":"answer now"}}'; hear; tell
		speak '{"type":"finish","answer":{"parts":[{"text":"42"}]}}'`
	if ans, err := onHost(t, script, m{"options": m{"temperature": 0.2}}).Run(t.Context(),
		agenttest.NewSession(setup)); err != nil || ans.Text() != "42" {
		t.Fatalf("Run: %+v, %v", ans, err)
	}
	said, err := os.ReadFile(tape)
	if err != nil {
		t.Fatal(err)
	}
	still := regexp.MustCompile(`"time":"[^"]*","mono_us":\d+`)
	got := still.ReplaceAllString(string(said), `"time":"2026-11-21T10:00:07.120000Z","mono_us":7120000`)
	const page = "../../docs/protocol.md"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	head, _, ok := strings.Cut(string(text), "with -update -->\n")
	if !ok {
		t.Fatal("docs/protocol.md has no transcript")
	}
	want := head + "with -update -->\n```\n" + got + "```\n"
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if d := cmp.Diff(string(text), want); d != "" {
		t.Errorf("docs/protocol.md is not what is said (-page +said); run go test with -update:\n%s", d)
	}
}
