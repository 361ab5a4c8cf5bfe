package command

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/agenttest"
)

// config parses a configuration as a run's file would hold it.
func config(t *testing.T, fields map[string]any) Config {
	t.Helper()
	raw, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	c, err := Parse(raw, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

type m = map[string]any

func TestInside(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"agent.sh": `cat "$1"; echo; cat "$(dirname "$0")/extra"`,
		"extra": "more"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		config m
		want   string // answer
		err    string // beginning of the Failure
	}{
		"argument": {m{"run": []string{"printf", "%s|%s", "{instruction}", "{stage}"}}, "do <this> & \"that\"|1",
			""},
		"file": {m{"run": `cat "$ROOT{instruction_file}"`}, `do <this> & "that"`, ""},
		"variable": {m{"run": `echo "$EVALRUN_INSTRUCTION/$EVALRUN_STAGE/$EVALRUN_SEED"`}, `do <this> & "that"/1/7`,
			""},
		"own env": {m{"run": `echo "$X"`, "env": m{"X": "{dir}: {instruction} {other}"}},
			`/workspace: do <this> & "that" {other}`, ""},
		"own files": {m{"run": `sh $ROOT{files}/agent.sh $ROOT{instruction_file}`, "files": dir},
			"do <this> & \"that\"\nmore", ""},
		"one file": {m{"run": `cat $ROOT{files}; ls -a $ROOT/opt/evalrun-agent`, "files": dir + "/extra"},
			"more.\n..\nextra", ""},
		"answer file": {m{"run": "echo loud; echo 42 > out.txt", "answer": "out.txt"}, "42", ""},
		"no answer":   {m{"run": "echo loud", "answer": "none"}, "", ""},
		"missing": {m{"run": "true", "answer": "out.txt"}, "",
			"it left with status 0 and wrote no answer to /workspace/out.txt"},
		"link": {m{"run": "ln -s /etc/passwd out.txt", "answer": "out.txt"}, "",
			"its answer /workspace/out.txt is not a plain file"},
		"too large": {m{"run": "head -c 300000 /dev/zero > out.txt", "answer": "out.txt"}, "",
			"its answer /workspace/out.txt has 300000 bytes"},
		"exit code": {m{"run": `echo partly; printf 'one\ntwo\033[2J\377' >&2; exit 3`}, "partly",
			"it left with status 3; its stderr ends: one⏎two\uFFFD[2J\uFFFD"},
		"signal":     {m{"run": "kill -9 $$"}, "", "it was ended by SIGKILL"},
		"no program": {m{"run": []string{"/no/such/program"}}, "", "it left with status 127"},
		"binary":     {m{"run": `printf 'a\377\000b'`}, "a\uFFFD\x00b", ""},
		"flood": {m{"run": "yes | head -c 3000000; echo the end"},
			strings.Repeat("y\n", (maxAnswer-len("\nthe end\n"))/2) + "the end", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := agenttest.NewSession(agenttest.Setup{Goal: `do <this> & "that"`, Sandbox: newBox(t), Seed: 7})
			ans, err := config(t, c.config).Agent(nil).Run(t.Context(), s)
			if got := ans.Text(); strings.TrimLeft(got, "y\n") != strings.TrimLeft(c.want, "y\n") ||
				len(got) > maxAnswer {
				t.Errorf("answer %.300q, want %.300q", got, c.want)
			}
			wantFailure(t, err, c.err)
		})
	}
}

func wantFailure(t *testing.T, err error, want string) {
	t.Helper()
	if want == "" {
		if err != nil {
			t.Errorf("Run: %v", err)
		}
		return
	}
	var f *Failure
	if !errors.As(err, &f) || !strings.HasPrefix(f.Error(), "agent program: "+want) {
		t.Errorf("Run: %v\nwant a Failure: %s", err, want)
	}
}

func TestInsideStopped(t *testing.T) {
	run := config(t, m{"run": "echo begun; sleep 1000"})
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(300*time.Millisecond, func() { cancel(io.ErrNoProgress) })
	_, err := run.Agent(nil).Run(ctx, agenttest.NewSession(agenttest.Setup{Sandbox: newBox(t)}))
	if err != io.ErrNoProgress {
		t.Errorf("Run: %v, want the context's cause", err)
	}

	slow := config(t, m{"run": "echo begun; sleep 1000", "timeout": "2s"})
	ans, err := slow.Agent(nil).Run(t.Context(), agenttest.NewSession(agenttest.Setup{Sandbox: newBox(t)}))
	if !errors.As(err, new(*agent.LimitError)) || ans.Text() != "begun" {
		t.Errorf("Run: %+v, %v, want what it printed and a limit", ans, err)
	}

	if _, err := slow.Agent(nil).Run(t.Context(), agenttest.NewSession(agenttest.Setup{})); err == nil {
		t.Error("Run without a machine: no error")
	}
}

func TestInsideLongInstruction(t *testing.T) {
	goal := strings.Repeat("x", maxArg)
	s := agenttest.NewSession(agenttest.Setup{Goal: goal, Sandbox: newBox(t)})
	_, err := config(t, m{"run": []string{"echo", "{instruction}"}}).Agent(nil).Run(t.Context(), s)
	if err == nil || !strings.Contains(err.Error(), "use {instruction_file}") {
		t.Errorf("Run: %v", err)
	}
	ans, err := config(t, m{"run": `wc -c < "$ROOT{instruction_file}"`}).Agent(nil).Run(t.Context(), s)
	if err != nil || ans.Text() != "131072" {
		t.Errorf("Run: %+v, %v", ans, err)
	}
}

func TestInsideSuite(t *testing.T) {
	agenttest.Run(t, agenttest.Suite{
		New:     func(t *testing.T) agent.Agent { return config(t, m{"run": "echo 42"}).Agent(nil) },
		Setup:   func(t *testing.T) agenttest.Setup { return agenttest.Setup{Sandbox: newBox(t)} },
		NoSteps: true,
	})
}

func TestConfigErrors(t *testing.T) {
	for raw, want := range map[string]string{
		`{}`:                              "run: want the program",
		`{"run":[1]}`:                     "run: want a list of texts",
		`{"run":["a"],"x":1}`:             `unknown field "x"`,
		`{"run":["a"],"where":"moon"}`:    `where: want sandbox or host, not "moon"`,
		`{"run":"echo {instruction}"}`:    "would be read as shell",
		`{"run":["{files}/a"]}`:           "{files} is used, and files is not set",
		`{"run":["a"],"files":"no-such"}`: "no such file",
		`{"run":["a"],"pass_env":["HOME"]}`: "nothing of this machine's environment " +
			"enters a sandbox",
		`{"run":["a"],"options":{}}`:                               "options: a program in the sandbox",
		`{"run":["a"],"start":"1s"}`:                               "start: is for where: host",
		`{"run":["a"],"timeout":"5"}`:                              "a duration is written like",
		`{"run":["a","{instruction}"],"where":"host"}`:             "{instruction} is for where: sandbox",
		`{"run":["a"],"where":"host","pass_env":["NO_SUCH_NAME"]}`: "the environment has no NO_SUCH_NAME",
		`{"run":["a"],"where":"host","answer":"none"}`:             "answer: is for where: sandbox",
		`{"run":["a"],"where":"host","timeout":"1s"}`:              "timeout: is for where: sandbox",
	} {
		if _, err := Parse(json.RawMessage(raw), t.TempDir()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %s", raw, err, want)
		}
	}
}

func TestFilesDigest(t *testing.T) {
	dir := t.TempDir()
	c := Config{Files: dir}
	digest := func() string {
		d, err := c.FilesDigest()
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	seen := map[string]bool{digest(): true}
	for _, change := range []func() error{
		func() error { return os.WriteFile(filepath.Join(dir, "a"), []byte("1"), 0o644) },
		func() error { return os.WriteFile(filepath.Join(dir, "a"), []byte("2"), 0o644) },
		func() error { return os.Chmod(filepath.Join(dir, "a"), 0o755) },
		func() error { return os.Rename(filepath.Join(dir, "a"), filepath.Join(dir, "b")) },
		func() error { return os.Symlink("b", filepath.Join(dir, "c")) },
	} {
		if err := change(); err != nil {
			t.Fatal(err)
		}
		if d := digest(); seen[d] || d != digest() {
			t.Errorf("digest %s again", d)
		} else {
			seen[d] = true
		}
	}
}

func TestOffered(t *testing.T) {
	goal := agent.Goal{Skills: []string{"/skills", "/more"}, MCP: []agent.MCPServer{
		{Name: "shop", Transport: "streamable-http", URL: "http://shop/mcp", Headers: map[string]string{"X": "y"}},
		{Name: "files", Transport: "stdio", Command: "mcp-files", Args: []string{"/app"}},
	}}
	s := agenttest.NewSession(agenttest.Setup{Goal: "g", Sandbox: newBox(t)})
	s.Goal.Skills, s.Goal.MCP = goal.Skills, goal.MCP
	c := config(t, m{"run": `echo "$EVALRUN_SKILLS {skills}"; cat "$ROOT$EVALRUN_MCP_CONFIG"; cmp "$ROOT$EVALRUN_MCP_CONFIG" "$ROOT{mcp_config}"`})
	ans, err := c.Agent(nil).Run(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	first, rest, _ := strings.Cut(ans.Text(), "\n")
	if first != "/skills:/more /skills:/more" {
		t.Errorf("skills: %q", first)
	}
	var got struct {
		MCPServers map[string]map[string]any `json:"mcpServers"`
	}
	if err := json.Unmarshal([]byte(rest), &got); err != nil {
		t.Fatalf("%v: %s", err, rest)
	}
	if x := got.MCPServers["shop"]; x["type"] != "http" || x["url"] != "http://shop/mcp" || x["command"] != nil {
		t.Errorf("shop: %v", x)
	}
	if x := got.MCPServers["files"]; x["type"] != "stdio" || x["command"] != "mcp-files" {
		t.Errorf("files: %v", x)
	}

	c = config(t, m{"run": `echo "$EVALRUN_PROMPT"; cat "$ROOT$EVALRUN_PROMPT_FILE"; cmp "$ROOT$EVALRUN_PROMPT_FILE" "$ROOT{prompt_file}"`})
	c.Prompt = "Be <terse>."
	if ans, err = c.Agent(nil).Run(t.Context(), s); err != nil || ans.Text() != "Be <terse>.\nBe <terse>." {
		t.Errorf("prompt: %q, %v", ans.Text(), err)
	}

	// Where nothing is offered, nothing is set.
	ans, err = config(t, m{"run": `echo "${EVALRUN_SKILLS-unset} ${EVALRUN_MCP_CONFIG-unset}{mcp_config}{prompt_file}${EVALRUN_PROMPT_FILE-}"; ls $ROOT/opt/evalrun-task`}).Agent(nil).
		Run(t.Context(), agenttest.NewSession(agenttest.Setup{Goal: "g", Sandbox: newBox(t)}))
	if err != nil || ans.Text() != "unset unset\ninstruction.md" {
		t.Errorf("%q, %v", ans.Text(), err)
	}
	if _, err := offer(agent.Goal{Skills: []string{"/a:b"}}); err == nil {
		t.Error("a folder with a colon")
	}
}
