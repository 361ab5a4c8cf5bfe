package text

import (
	"encoding/json"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/evalrun/evalrun/agent/event"
)

// Maximum number of lines shown of a text.
const (
	fewLines  = 6
	manyLines = 24
)

// event prints one event of a session.
func (t *storyWriter) event(e *event.Event) {
	t.mono = e.Mono
	show := func(what, text string, paint func(string) string) {
		if e.Actor != "" {
			text = strings.TrimSpace("[" + line(e.Actor) + "] " + text)
		}
		t.item(e.Mono, what, text, paint)
	}
	plain := func(s string) string { return s }
	reward := t.reward(e)
	defer func() {
		if reward != "" { // a browser's reward is printed with the page
			t.f("%s%s\n", indent, reward)
		}
	}()
	switch b := e.Body.(type) {
	case event.Run:
		cmd := b.Command
		// shell with a script: show the script on its own
		if n := len(b.Args); n > 2 && b.Args[n-2] == "-c" {
			cmd = shellWords(b.Args[:n-1]) + "\n" + b.Args[n-1]
		} else if n > 0 {
			cmd = shellWords(b.Args)
		}
		sign := "$ "
		if b.Input {
			sign = "> "
		}
		first, rest, more := t.top(cmd)
		show("run", strings.TrimSpace(t.st.bold(sign+first)+" "+
			t.st.dim(strings.Join(words("in", b.Dir, "as", b.User), ", "))), plain)
		if more {
			t.body(rest, manyLines)
		}
	case event.RunResult:
		show("", t.runResult(&b), plain)
		t.body(b.Output, manyLines)
		if b.Stderr != "" {
			t.f("%sstderr\n", indent)
			t.body(b.Stderr, manyLines)
		}
		t.blob(b.Blob)
	case event.Read:
		show("view", t.st.bold(line(b.Path))+t.st.dim(lineRange(b.Lines)), plain)
	case event.Write:
		show("write", t.st.bold(line(b.Path))+t.st.dim(lineRange(b.Lines)), plain)
		t.marked("+ ", b.Text)
	case event.Edit:
		what := ""
		if b.Command == event.EditInsert {
			what = fmt.Sprintf(" after line %d", b.Line)
		}
		show("edit", line(b.Command)+" "+t.st.bold(line(b.Path))+t.st.dim(what), plain)
		t.marked("- ", b.Old)
		t.marked("+ ", b.Text)
	case event.Glob:
		show("glob", strings.TrimSpace(t.st.bold(line(b.Pattern))+" "+
			t.st.dim(strings.Join(words("in", b.Path), ", "))), plain)
	case event.Grep:
		show("grep", strings.TrimSpace(t.st.bold(line(b.Pattern))+" "+
			t.st.dim(strings.Join(words("in", b.Path, "files", b.Include), ", "))), plain)
	case event.Found:
		t.edited(show, b.Text, b.Error)
	case event.Viewed:
		t.edited(show, b.Text, b.Error)
		t.blob(b.Blob)
	case event.Edited:
		t.edited(show, b.Text, b.Error)
	case event.ToolCall:
		show("tool", t.st.bold(line(b.Name))+" "+t.args(string(b.Args)), plain)
	case event.ToolResult:
		text := line(b.Name)
		if b.Error {
			text += " " + t.st.bad("failed")
		}
		show("", "→ "+text, plain)
		t.parts(b.Parts)
		t.body(string(b.Data), fewLines)
	case event.Think:
		show("think", "", plain)
		t.body(b.Thought, manyLines)
	case event.Finish:
		text := ""
		if b.GaveUp {
			text = t.st.warn("gave up")
		}
		show("finish", text, t.st.bold)
		t.body(b.Message, manyLines)
		t.body(string(b.Outputs), fewLines)
	case event.Invalid:
		show("bad call", fmt.Sprintf("%s %s", t.st.bold(line(b.Name)), t.args(b.Args)), t.st.bad)
		t.body(b.Why, fewLines)
	case event.Ack:
		if b.Text != "" {
			show("", "→ "+line(b.Text), t.st.dim)
		}
	case event.Error:
		show("", t.st.bad("→ error "+line(b.Code)), plain)
		t.body(b.Text, manyLines)
	case event.Lost:
		show("", t.st.warn("→ no result: ")+line(b.Why), plain)
	case event.Message:
		show(e.Source, "", t.st.bold)
		t.parts(b.Parts)
	case event.System:
		show("system", t.st.dim(strings.Join(words("tools", strings.Join(b.Tools, ", ")), "")), t.st.dim)
		t.body(b.Text, fewLines)
	case event.Reply:
		t.reply(&b, show)
	case event.Put:
		show("put", fmt.Sprintf("%s into %s (%d bytes)", plural(b.Files, "file"), line(b.Dir), b.Bytes), t.st.dim)
	case event.NetworkRefused:
		where := line(b.Host)
		if b.Port != 0 {
			where = net.JoinHostPort(where, strconv.Itoa(b.Port))
		}
		times := ""
		if b.Count > 1 {
			times = fmt.Sprintf(", %d times", b.Count)
		}
		whose := "the " + line(b.Role) + "'s machine"
		if b.Role == "browser" {
			whose = "the browser"
		}
		show("refused", fmt.Sprintf("network of %s: %s (%s)%s", whose, where, line(b.Why), times), t.st.warn)
	case event.Late:
		show("late", fmt.Sprintf("a result (%s) of event %d came after it had been answered", line(b.Was), b.Action),
			t.st.warn)
		t.body(string(b.Body), fewLines)
	case event.Browse:
		if b.Code == "" {
			show("browse", t.st.dim("look"), plain)
			break
		}
		first, rest, more := t.top(b.Code)
		show("browse", t.st.bold(first), plain)
		if more {
			t.body(rest, manyLines)
		}
	case event.BrowseURL:
		show("browse", t.st.bold(line(b.URL)), plain)
	case event.Browsed:
		show("", t.browsed(&b, reward), plain)
		reward = ""
		t.seenIn(&b)
	case event.Info:
		show("note", line(b.What), t.st.dim)
		t.body(b.Text, fewLines)
		t.body(string(b.Data), fewLines)
	case event.Stored:
		show(b.K, b.C.String()+", too large for the log", plain)
		t.blob(&b.Blob)
	default:
		mark := ""
		if b.Class() == event.Observation {
			mark = "→ "
		}
		show(mark+b.Kind(), b.Class().String(), plain)
		if raw, err := json.Marshal(b); err == nil {
			t.body(string(raw), fewLines)
		}
	}
}

// marked prints the lines of a text, each after a mark.
func (t *storyWriter) marked(mark, text string) {
	if text != "" {
		t.body(mark+strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n"+mark), manyLines)
	}
}

// edited prints what the editor says.
// lineRange describes the lines that an action names.
func lineRange(lines []int) string {
	if len(lines) != 2 {
		return ""
	}
	if lines[1] < 0 {
		return fmt.Sprintf(" from line %d", lines[0])
	}
	return fmt.Sprintf(" from line %d to %d", lines[0], lines[1])
}

func (t *storyWriter) edited(show func(what, text string, style func(string) string), text string, failed bool) {
	if failed {
		show("", t.st.bad("→ failed"), func(s string) string { return s })
	}
	t.body(text, manyLines)
}

func (t *storyWriter) runResult(b *event.RunResult) string {
	text := fmt.Sprintf("→ exit %d", b.Code)
	paint := t.st.dim
	switch {
	case b.OOM:
		text, paint = "→ out of memory", t.st.bad
	case b.TimedOut:
		text, paint = "→ timed out", t.st.bad
	case b.Running:
		text = "→ still running"
	case b.Signal != "":
		text, paint = "→ ended by "+line(b.Signal), t.st.bad
	case b.Code != 0:
		paint = t.st.bad
	}
	text = paint(text) + t.st.dim(", "+duration(time.Duration(b.WallMS)*time.Millisecond))
	if b.Truncated {
		text += t.st.warn(fmt.Sprintf(", cut from %d bytes", b.OutBytes+b.ErrBytes))
	}
	return text
}

func (t *storyWriter) reply(b *event.Reply, show func(what, text string, paint func(string) string)) {
	facts := []string{line(b.Model)}
	if b.Role != "main" {
		facts = append(facts, line(b.Role))
	}
	facts = append(facts, fmt.Sprintf("%s → %s tokens", count(b.Usage.In), count(b.Usage.Out)))
	if b.Usage.Cost != nil {
		facts = append(facts, dollars(b.Usage.Cost))
	}
	if b.Stop != "" {
		facts = append(facts, line(b.Stop))
	}
	show("reply", t.st.dim(strings.Join(facts, " · ")), t.st.bold)
	if b.Reasoning != "" {
		t.f("%sreasoning\n", indent)
		t.body(b.Reasoning, fewLines)
	}
	t.parts(b.Parts)
	for _, c := range b.Calls {
		t.f("%s%s %s %s\n", indent, t.st.dim("calls"), t.st.bold(line(c.Name)), t.args(c.Args))
	}
}

// args formats a call's arguments in one line.
func (t *storyWriter) args(s string) string {
	s = line(s)
	if t.st.Full {
		return s
	}
	return cut(s, 200)
}

func (t *storyWriter) parts(ps []event.Part) {
	t.body(event.PlainText(ps), manyLines)
	for _, p := range ps {
		t.blob(p.Blob)
	}
}

func (t *storyWriter) blob(b *event.Blob) {
	if b != nil {
		t.f("%s%s\n", indent, t.st.dim(fmt.Sprintf("[%s, %d bytes: blobs/%s]", line(b.Type), b.Size,
			blobPath(b.SHA256))))
	}
}

func blobPath(sum string) string {
	sum = line(sum)
	if len(sum) < 3 {
		return sum
	}
	return sum[:2] + "/" + sum[2:]
}

func shellWords(args []string) string {
	words := make([]string, len(args))
	for i, a := range args {
		words[i] = quote(a)
	}
	return strings.Join(words, " ")
}
