package memory

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/evalrun/evalrun/agent/event"
)

// Parts returns an observation as shown to a model: text of at most limit characters, and images.
func Parts(b event.Body, limit int) []event.Part {
	switch b := b.(type) {
	case event.ToolResult:
		return toolParts(b, limit)
	case event.Viewed:
		if b.Blob != nil && strings.HasPrefix(b.Blob.Type, "image/") {
			return append(event.Text(Cut(Text(b), limit)), event.Part{Blob: b.Blob})
		}
	}
	return event.Text(Cut(Text(b), limit))
}

// Text describes an observation in words.
func Text(b event.Body) string {
	switch b := b.(type) {
	case event.RunResult:
		return runText(b)
	case event.Viewed:
		return editText(b.Text, b.Error)
	case event.Edited:
		return editText(b.Text, b.Error)
	case event.Found:
		return editText(b.Text, b.Error)
	case event.ToolResult:
		return event.PlainText(toolParts(b, 1<<30))
	case event.Ack:
		return or(b.Text, "Done.")
	case event.Error:
		return "Error: " + or(b.Text, "the action could not be done")
	case event.Lost:
		return "No result: " + or(b.Why, "the action was broken off")
	case event.Browsed:
		return browsedText(b)
	case event.Unknown:
		return or(string(b.Raw), "(no content)")
	}
	raw, err := json.Marshal(b)
	if err != nil {
		return "(" + b.Kind() + ")"
	}
	return string(raw)
}

// editText returns what the editor says, an error as in OpenHands.
func editText(text string, failed bool) string {
	if failed {
		return "ERROR:\n" + text
	}
	return or(text, "Done.")
}

func toolParts(t event.ToolResult, limit int) []event.Part {
	var out []event.Part
	if t.Error {
		out = append(out, event.Part{Text: "The tool reports an error."})
	}
	for _, p := range t.Parts {
		if p.Blob == nil {
			p.Text = Cut(p.Text, limit)
			limit = max(limit-len(p.Text), 0)
		}
		out = append(out, p)
	}
	if len(t.Parts) == 0 && len(t.Data) > 0 {
		out = append(out, event.Part{Text: Cut(string(t.Data), limit)})
	}
	if len(out) == 0 {
		return event.Text("(no output)")
	}
	return out
}

func runText(r event.RunResult) string {
	if r.Suffix != "" {
		return sessionText(r)
	}
	var s strings.Builder
	s.WriteString(r.Output)
	line := func(format string, args ...any) {
		if s.Len() > 0 && !strings.HasSuffix(s.String(), "\n") {
			s.WriteByte('\n')
		}
		fmt.Fprintf(&s, format, args...)
	}
	if r.Stderr != "" {
		line("[standard error]\n%s", r.Stderr)
	}
	if r.Output == "" && r.Stderr == "" {
		line("(no output)")
	}
	if r.Truncated {
		line("[the output had %d bytes; its middle was left out]", r.OutBytes+r.ErrBytes)
		if r.Full != "" {
			line("[all of it is in %s]", r.Full)
		}
	}
	switch {
	case r.TimedOut:
		line("[stopped: the command took longer than its time limit]")
	case r.OOM:
		line("[killed: the command used more memory than it may]")
	case r.Signal != "":
		line("[ended by signal %s]", r.Signal)
	default:
		line("[exit code %d]", r.Code)
	}
	if r.Dir != "" {
		line("[working directory %s]", r.Dir)
	}
	return s.String()
}

// sessionText describes the result of a call of a persistent shell.
func sessionText(r event.RunResult) string {
	s := r.Prefix + strings.TrimRight(r.Output, " \t\r\n")
	if s == r.Prefix {
		s = strings.TrimRight(s, "\n")
	}
	s += r.Suffix
	if r.Truncated && r.Full != "" {
		s += "\n[All of the output, " + fmt.Sprint(r.OutBytes) + " bytes, is in " + r.Full + "]"
	}
	if r.OOM {
		s += "\n[A process used more memory than it may, and was killed.]"
	}
	if r.Dir != "" {
		s += "\n[Current working directory: " + r.Dir + "]"
	}
	if !r.Running && r.Code != -1 {
		s += "\n[Command finished with exit code " + fmt.Sprint(r.Code) + "]"
	}
	return strings.TrimLeft(s, "\n")
}

// describe returns a one-line description of an action.
func describe(b event.Body) string {
	switch b := b.(type) {
	case event.Run:
		if len(b.Args) > 0 {
			return strings.Join(b.Args, " ")
		}
		return b.Command
	case event.ToolCall:
		return b.Name + " " + string(b.Args)
	case event.Browse:
		return or(b.Code, "a look at the browser")
	case event.BrowseURL:
		return "opening " + b.URL
	}
	return b.Kind()
}

func or(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// Cut shortens a text to limit bytes, at rune boundaries. It keeps the start and the end and says
// how much was cut. It makes the text valid UTF-8.
func Cut(s string, limit int) string {
	if len(s) > limit {
		head, tail := limit/2, len(s)-(limit-limit/2)
		for head > 0 && !utf8.RuneStart(s[head]) {
			head--
		}
		for tail < len(s) && !utf8.RuneStart(s[tail]) {
			tail++
		}
		s = s[:head] + fmt.Sprintf("\n[… %d characters left out …]\n", tail-head) + s[tail:]
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
