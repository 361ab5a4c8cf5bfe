package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/evalrun/evalrun/runtime/local"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// The test's program is a server, too: the tests put it into sandboxes.
const serverVariable = "EVALRUN_MCP_TEST"

func TestMain(m *testing.M) {
	if how := os.Getenv(serverVariable); how != "" {
		serve(how)
		return
	}
	local.Init()
	os.Exit(m.Run())
}

type words struct {
	Text string `json:"text"`
}

// serve is a server that is well-behaved, or not.
func serve(how string) {
	switch how {
	case "silent":
		time.Sleep(time.Hour)
	case "garbage":
		fmt.Println("this is no message")
		time.Sleep(time.Hour)
	case "flood":
		line := strings.Repeat("x", 1<<20)
		for {
			fmt.Print(line)
		}
	case "ends":
		fmt.Fprintln(os.Stderr, "no key given")
		os.Exit(3)
	}
	s := sdk.NewServer(&sdk.Implementation{Name: "test", Version: "1"}, nil)
	add := func(name string, do func(words) (*sdk.CallToolResult, error)) {
		sdk.AddTool(s, &sdk.Tool{Name: name, Description: name + " a text"},
			func(_ context.Context, _ *sdk.CallToolRequest, in words) (*sdk.CallToolResult, any, error) {
				r, err := do(in)
				return r, nil, err
			})
	}
	say := func(text string) *sdk.CallToolResult {
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: text}}}
	}
	add("echo", func(w words) (*sdk.CallToolResult, error) { return say(w.Text), nil })
	add("fail", func(w words) (*sdk.CallToolResult, error) { return nil, fmt.Errorf("failed: %s", w.Text) })
	add("user", func(words) (*sdk.CallToolResult, error) {
		return say(fmt.Sprint(os.Getuid(), " ", os.Getenv("GREETING"), " ", len(os.Environ()))), nil
	})
	add("picture", func(words) (*sdk.CallToolResult, error) {
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.ImageContent{Data: []byte("png"), MIMEType: "image/png"},
			&sdk.TextContent{Text: "seen"}}}, nil
	})
	if how != "plain" {
		add("huge", func(words) (*sdk.CallToolResult, error) { return say(strings.Repeat("h", 3<<20)), nil })
		add("monster", func(words) (*sdk.CallToolResult, error) { return say(strings.Repeat("m", 32<<20)), nil })
		add("many", func(words) (*sdk.CallToolResult, error) {
			r := &sdk.CallToolResult{}
			for range 5000 {
				r.Content = append(r.Content, &sdk.ImageContent{Data: []byte("x"), MIMEType: "image/png"})
			}
			return r, nil
		})
		add("exit", func(words) (*sdk.CallToolResult, error) {
			fmt.Fprintln(os.Stderr, "out of luck")
			os.Exit(4)
			return nil, nil
		})
		add("hang", func(words) (*sdk.CallToolResult, error) { time.Sleep(time.Hour); return nil, nil })
		add("odd.name", func(w words) (*sdk.CallToolResult, error) { return say("odd"), nil })
		add("odd_name", func(w words) (*sdk.CallToolResult, error) { return say("odd, too"), nil })
		nothing := func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) { return say(""), nil }
		large := `{"type":"object","properties":{` + strings.Repeat(`"a":{"type":"string"},`, 4000) + `"b":{}}, "description":"` +
			strings.Repeat("x", maxSchema) + `"}`
		s.AddTool(&sdk.Tool{Name: "large-schema", InputSchema: json.RawMessage(large)}, nothing)
		for i := range 200 {
			s.AddTool(&sdk.Tool{Name: fmt.Sprintf("z%03d", i), InputSchema: json.RawMessage(`{"type":"object"}`)}, nothing)
		}
	}
	if how == "http" {
		h := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s }, nil)
		guard := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("X-Key") != "key" {
				http.Error(w, "no key", http.StatusForbidden)
				return
			}
			h.ServeHTTP(w, r)
		})
		fmt.Fprintln(os.Stderr, http.ListenAndServe("127.0.0.1:8765", guard))
		os.Exit(1)
	}
	s.Run(context.Background(), &sdk.StdioTransport{})
}

// machine returns a sandbox that has the server as /opt/server.
func machine(t *testing.T) sandbox.Sandbox {
	t.Helper()
	d := local.New()
	t.Cleanup(func() { d.Close() })
	if err := d.Probe(t.Context()); err != nil && os.Getenv("EVALRUN_TEST_LOCAL") == "" {
		t.Skip("needs the sandbox driver: ", err)
	}
	sb, err := d.Create(t.Context(), sandbox.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sb.Close() })
	name, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := sb.Put(t.Context(), "/opt", fstest.MapFS{"server": {Data: b, Mode: 0o755 | fs.ModePerm}}); err != nil {
		t.Fatal(err)
	}
	return sb
}

func client(t *testing.T, sb sandbox.Sandbox, servers ...Server) *Client {
	c := New(func(context.Context) (sandbox.Sandbox, error) { return sb, nil }, servers, Options{})
	t.Cleanup(c.Close)
	return c
}

func stdio(name, how string) Server {
	return Server{Name: name, Transport: "stdio", Command: "/opt/server", Env: map[string]string{serverVariable: how, "GREETING": "hi"}}
}

// called returns the text of a call, with "!" before that of an error.
func called(t *testing.T, c *Client, name, args string) string {
	t.Helper()
	r, err := c.Call(t.Context(), name, json.RawMessage(args))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	var s strings.Builder
	if r.Error {
		s.WriteString("!")
	}
	for _, p := range r.Parts {
		if p.Image != nil {
			fmt.Fprintf(&s, "<%s %s>", p.Type, p.Image)
		}
		s.WriteString(p.Text)
	}
	return s.String()
}

func names(tools []Tool) string {
	var out []string
	for _, t := range tools {
		out = append(out, t.Name)
	}
	return strings.Join(out, " ")
}

func TestServer(t *testing.T) {
	c := client(t, machine(t), stdio("my server", "plain"))
	tools, notes, err := c.Tools(t.Context())
	if err != nil || len(notes) > 0 || names(tools) != "mcp__my_server__echo mcp__my_server__fail mcp__my_server__picture mcp__my_server__user" {
		t.Fatalf("%s; notes %q, %v", names(tools), notes, err)
	}
	var schema struct {
		Properties map[string]any
	}
	if err := json.Unmarshal(tools[0].Schema, &schema); err != nil || schema.Properties["text"] == nil ||
		tools[0].Description != "echo a text" {
		t.Errorf("%s %s: %v", tools[0].Description, tools[0].Schema, err)
	}
	for _, x := range []struct{ tool, args, want string }{
		{"echo", `{"text":"ä\u0000"}`, "ä\x00"},
		{"echo", `{"text":1}`, "!*"},
		{"echo", `{}`, "!*"},
		{"echo", `[]`, "!the arguments are no JSON object"},
		{"echo", ``, "!the arguments are no JSON object"},
		{"fail", `{"text":"x"}`, "!failed: x"},
		{"picture", `{"text":""}`, "<image/png png>seen"},
		{"nothing", `{}`, "!there is no tool named mcp__my_server__nothing"},
	} {
		got := called(t, c, "mcp__my_server__"+x.tool, x.args)
		if want, begins := strings.CutSuffix(x.want, "*"); got != want && !(begins && strings.HasPrefix(got, want)) {
			t.Errorf("%s %s: %q, want %q", x.tool, x.args, got, x.want)
		}
	}
	// Its environment is that of the sandbox, and what the task gives it.
	got := called(t, c, "mcp__my_server__user", `{"text":""}`)
	if !strings.Contains(got, " hi ") {
		t.Errorf("environment: %q", got)
	}
	again, _, err := c.Tools(t.Context())
	if err != nil || names(again) != names(tools) {
		t.Errorf("the tools have changed: %s, %v", names(again), err)
	}
	c.Close()
	if got := called(t, c, "mcp__my_server__echo", `{"text":"x"}`); got != "!the server was ended" {
		t.Errorf("after the end: %q", got)
	}
}

func TestHTTP(t *testing.T) {
	sb := machine(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		var out bytes.Buffer
		if _, err := sb.Exec(ctx, sandbox.Command{Args: []string{"/opt/server"}, Stdout: &out,
			Env: map[string]string{serverVariable: "http"}}); ctx.Err() == nil {
			t.Errorf("the server ended: %v, %s", err, out.String())
		}
	}()
	defer func() { cancel(); <-ended }()
	for {
		conn, err := sb.(sandbox.Dialer).Dial(t.Context(), 8765)
		if err == nil {
			conn.Close()
			break
		}
		select {
		case <-ended:
			t.FailNow()
		case <-time.After(10 * time.Millisecond):
		}
	}
	url := "http://127.0.0.1:8765/mcp"
	c := client(t, sb, Server{Name: "web", Transport: "streamable-http", URL: url, Headers: map[string]string{"X-Key": "key"}},
		Server{Name: "locked", Transport: "streamable-http", URL: url},
		Server{Name: "far", Transport: "streamable-http", URL: "http://example.com/mcp"},
		Server{Name: "meta", Transport: "sse", URL: "http://169.254.169.254/sse"},
		Server{Name: "closed", Transport: "sse", URL: "http://localhost:1/sse"})
	tools, notes, err := c.Tools(t.Context())
	if err != nil || len(tools) != maxTools || !strings.HasPrefix(tools[0].Name, "mcp__web__") {
		t.Fatalf("%s: %v; %q", names(tools), err, notes)
	}
	if got := called(t, c, "mcp__web__echo", `{"text":"over HTTP"}`); got != "over HTTP" {
		t.Error(got)
	}
	said := strings.Join(notes, "\n")
	for _, want := range []string{"the server locked: it cannot be reached:", "the server far: it cannot be reached: example.com is neither",
		"the server meta: it cannot be reached: 169.254.169.254 is neither", "the server closed: it cannot be reached:",
		"the server web has more than 128 tools"} {
		if !strings.Contains(said, want) {
			t.Errorf("no note %q in\n%s", want, said)
		}
	}
}

// short makes servers late soon.
func short(t *testing.T) {
	start, call := startTime, callTime
	t.Cleanup(func() { startTime, callTime = start, call })
	startTime, callTime = 3*time.Second, 3*time.Second
}

func TestHostile(t *testing.T) {
	sb := machine(t)
	t.Run("start", func(t *testing.T) {
		short(t)
		c := client(t, sb, stdio("silent", "silent"), stdio("garbage", "garbage"), stdio("flood", "flood"), stdio("ends", "ends"),
			Server{Name: "none", Transport: "stdio", Command: "/no/such/program"}, stdio("good", "plain"))
		tools, notes, err := c.Tools(t.Context())
		if err != nil || len(tools) != 4 || len(notes) != 5 {
			t.Fatalf("%s: %v\n%s", names(tools), err, strings.Join(notes, "\n"))
		}
		for i, want := range []string{"the server silent: it did not start and list its tools within", "the server garbage: ",
			"the server flood: ", "the server ends: it cannot be reached: ", "the server none: it cannot be reached: "} {
			if !strings.HasPrefix(notes[i], want) || len(notes[i]) > 1000 {
				t.Errorf("%q, want %q", notes[i], want)
			}
		}
		if !strings.Contains(notes[3], "no key given") {
			t.Errorf("without what it printed: %q", notes[3])
		}
	})
	t.Run("tools", func(t *testing.T) {
		c := client(t, sb, stdio("s", "hostile"))
		tools, notes, err := c.Tools(t.Context())
		all := " " + names(tools) + " "
		if err != nil || len(tools) != maxTools {
			t.Fatalf("%s: %v", all, err)
		}
		for _, want := range []string{" mcp__s__odd_name ", " mcp__s__odd_name_2 "} {
			if !strings.Contains(all, want) {
				t.Errorf("no%sin %s", want, all)
			}
		}
		if said := strings.Join(notes, "\n"); !strings.Contains(said, `the tool "large-schema" of the server s: the schema`) {
			t.Errorf("notes: %s", said)
		}
		if got := called(t, c, "mcp__s__huge", `{"text":""}`); len(got) > maxText+100 || !strings.HasSuffix(got, "[the rest of 3145728 bytes is left out]") {
			t.Errorf("a large result: %d bytes, %q", len(got), got[len(got)-50:])
		}
		if got := called(t, c, "mcp__s__many", `{"text":""}`); strings.Count(got, "<image/png") != maxImages {
			t.Errorf("many images: %d bytes", len(got))
		}
		if got := called(t, c, "mcp__s__monster", `{"text":""}`); !strings.HasPrefix(got, "!") || len(got) > 2000 {
			t.Errorf("a result over the limit: %d bytes, %.200q", len(got), got)
		}
		if got := called(t, c, "mcp__s__echo", `{"text":"back"}`); got != "back" {
			t.Errorf("after that: %q", got)
		}
		got := called(t, c, "mcp__s__exit", `{"text":""}`)
		if !strings.HasPrefix(got, "!the connection to the server was lost") || !strings.Contains(got, "out of luck") {
			t.Errorf("a server that ends: %q", got)
		}
		if got := called(t, c, "mcp__s__echo", `{"text":"again"}`); got != "again" {
			t.Errorf("started again: %q", got)
		}
		called(t, c, "mcp__s__exit", `{"text":""}`)
		called(t, c, "mcp__s__exit", `{"text":""}`)
		if got := called(t, c, "mcp__s__echo", `{"text":""}`); !strings.Contains(got, "has ended 4 times") {
			t.Errorf("one that ends again and again: %q", got)
		}
	})
	t.Run("hang", func(t *testing.T) {
		c := client(t, sb, stdio("s", "hostile"))
		if _, _, err := c.Tools(t.Context()); err != nil {
			t.Fatal(err)
		}
		short(t)
		if got := called(t, c, "mcp__s__hang", `{"text":""}`); !strings.HasPrefix(got, "!the tool did not answer within 3s") {
			t.Error(got)
		}
		if got := called(t, c, "mcp__s__echo", `{"text":"meanwhile"}`); got != "meanwhile" {
			t.Error(got)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(context.DeadlineExceeded)
		if _, err := c.Call(ctx, "mcp__s__echo", json.RawMessage(`{"text":""}`)); err != context.DeadlineExceeded {
			t.Errorf("canceled: %v", err)
		}
	})
}
