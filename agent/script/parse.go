package script

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/internal/fsutil"
	"github.com/evalrun/evalrun/internal/yamldoc"
)

// Load reads and parses a file.
func Load(name string) (*Script, error) {
	data, err := fsutil.ReadFile(name, 0)
	if err != nil {
		return nil, fmt.Errorf("script: %w", err)
	}
	return Parse(name, data)
}

// Parse parses rules: one rule per line if name ends in .jsonl, else YAML. It reports all errors at
// once, each with its position.
func Parse(name string, data []byte) (*Script, error) {
	p := &parse{}
	if strings.HasSuffix(name, ".jsonl") {
		p.jsonl(name, data)
	} else if n := p.read(yamldoc.Parse(name, data, yamldoc.Bounds{NoAliases: true})); n != nil {
		switch n.Kind {
		case yamldoc.List:
			for _, r := range n.Items {
				p.rule(r)
			}
		case yamldoc.Null:
		default:
			p.fail(n, "want a list of rules")
		}
	}
	for _, e := range p.errs {
		if e.Msg == yamldoc.NotUTF8 {
			e.Hint = "bytes of any kind are written by a command, such as printf '\\377'"
		}
	}
	if len(p.rules) == 0 && len(p.errs) == 0 {
		p.errs.Add(&yamldoc.Error{Pos: yamldoc.Pos{File: name}, Msg: "no rules",
			Hint: `a rule looks like {"task": "*", "do": [{"finish": "42"}]}`})
	}
	if err := p.errs.Err(); err != nil {
		return nil, err
	}
	return &Script{name: name, rules: p.rules}, nil
}

type parse struct {
	rules []rule
	errs  yamldoc.Errors
}

func (p *parse) fail(n *yamldoc.Node, format string, args ...any) {
	p.errs.Add(n.Errorf(format, args...))
}

// read records the errors of a document. It returns nil if there is nothing to continue with.
func (p *parse) read(n *yamldoc.Node, err error) *yamldoc.Node {
	errs, _ := err.(yamldoc.Errors)
	for _, e := range errs {
		p.errs.Add(e)
		n = nil
	}
	return n
}

func (p *parse) jsonl(name string, data []byte) {
	for i, line := range bytes.Split(data, []byte("\n")) {
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		if n := p.read(yamldoc.ParseJSON(yamldoc.Pos{File: name, Line: i + 1, Column: 1}, line)); n != nil {
			p.rule(n)
		}
	}
}

// decode decodes n into v and reports whether there were no errors.
func (p *parse) decode(n *yamldoc.Node, v any) bool {
	before := len(p.errs)
	d := yamldoc.Decoder{Report: p.errs.Add, Root: n.Path(), Scalars: yamldoc.Exact}
	d.Decode(n, v)
	return len(p.errs) == before
}

func (p *parse) rule(n *yamldoc.Node) {
	before := len(p.errs)
	var r rule
	if !p.known(n, "a rule", "task", "stage", "do") {
		return
	}
	r.task = func(string) bool { return true }
	if v := n.Find("task"); v != nil {
		var pat string
		if p.decode(v, &pat) && pat == "" {
			p.fail(v, "want a pattern such as \"greet-*\"")
		}
		r.task = func(id string) bool { return match(pat, id) }
	}
	if v := n.Find("stage"); v != nil && p.decode(v, &r.stage) && r.stage < 1 {
		p.fail(v, "want a number from 1, not %d", r.stage)
	}
	do := n.Find("do")
	if do == nil {
		p.fail(n, "a rule needs do: the list of its steps")
		return
	}
	r.steps = p.steps(do)
	if len(p.errs) == before {
		p.rules = append(p.rules, r)
	}
}

func (p *parse) steps(n *yamldoc.Node) []step {
	if n.Kind != yamldoc.List {
		p.fail(n, "want a list of steps")
		return nil
	}
	out := make([]step, 0, len(n.Items))
	for _, v := range n.Items {
		out = append(out, p.step(v))
	}
	return out
}

var kinds = []string{"run", "browse", "tool", "action", "think", "ask", "sleep", "fail", "panic", "finish", "do"}

func (p *parse) step(n *yamldoc.Node) (st step) {
	if !p.known(n, "a step", append([]string{"times"}, kinds...)...) {
		return st
	}
	kind, v := "", n
	for _, e := range n.Entries {
		switch {
		case e.Key == "times":
			if p.decode(e.Value, &st.times) && st.times < 1 {
				p.fail(e.Value, "want a number from 1, not %d", st.times)
			}
		case kind != "":
			p.fail(n, "a step is one thing, not %s and %s", kind, e.Key)
			return st
		default:
			kind, v = e.Key, e.Value
		}
	}
	good := true
	decode := func(to any) { good = p.decode(v, to) }
	need := func(ok bool, what string) {
		if good && !ok {
			p.fail(v, "want %s", what)
		}
	}
	switch kind {
	case "":
		p.fail(n, "a step needs one of %s", strings.Join(kinds, ", "))
	case "run":
		var r rawRun
		decode(&r)
		need((r.Command == "") != (len(r.Args) == 0), "either a command line or args")
		st.body, st.timeout = event.Run{Command: r.Command, Args: r.Args, Dir: r.Dir, User: r.User}, r.Timeout.std()
	case "browse":
		var r rawBrowse
		decode(&r)
		need(r.Code == "" || r.URL == "", "either code or url")
		st.body, st.timeout = event.Browse{Code: r.Code}, r.Timeout.std()
		if r.URL != "" {
			st.body = event.BrowseURL{URL: r.URL}
		}
	case "tool":
		var r rawTool
		decode(&r)
		need(r.Name != "", "a name")
		st.body, st.timeout = event.ToolCall{Name: r.Name, Args: p.sorted(v, r.Args)}, r.Timeout.std()
	case "action":
		var r rawAction
		decode(&r)
		need(r.Kind != "", "a kind")
		b, err := event.Default.DecodeBody(event.Action, r.Kind, p.sorted(v, r.Body))
		if err != nil {
			p.fail(v, "%v", err)
		}
		st.body, st.timeout = b, r.Timeout.std()
	case "think":
		var s string
		decode(&s)
		st.body = event.Think{Thought: s}
	case "ask":
		r := rawAsk{Role: "main"}
		decode(&r)
		need(r.Text != "", "a text")
		st.ask = &ask{role: cmp.Or(r.Role, "main"), text: r.Text}
	case "sleep":
		var d duration
		decode(&d)
		st.sleep = d.std()
	case "fail", "panic":
		var s string
		decode(&s)
		need(s != "", "a text")
		if kind == "fail" {
			st.fail = s
		} else {
			st.panic = s
		}
	case "finish":
		var r rawFinish
		decode(&r)
		st.finish = &event.Finish{Message: r.Message, GaveUp: r.GaveUp, Outputs: p.sorted(v, r.Outputs)}
	case "do":
		st.group = p.steps(v)
	}
	return st
}

// sorted returns values from YAML with sorted keys, as they are recorded; JSON is returned
// unchanged.
func (p *parse) sorted(n *yamldoc.Node, raw json.RawMessage) json.RawMessage {
	if raw == nil || strings.HasSuffix(n.Pos.File, ".jsonl") {
		return raw
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		p.fail(n, "%v", err)
	}
	b, err := json.Marshal(v)
	if err != nil {
		p.fail(n, "%v", err)
	}
	return b
}

// known reports whether n is an object with no other keys than these.
func (p *parse) known(n *yamldoc.Node, what string, keys ...string) bool {
	if n.Kind != yamldoc.Map {
		p.fail(n, "%s is an object with keys such as %s", what, strings.Join(keys, ", "))
		return false
	}
	good := true
	for _, e := range n.Entries {
		if !slices.Contains(keys, e.Key) {
			err := e.Errorf("unknown key in %s", what)
			err.Hint = yamldoc.OrKnown(e.Key, keys)
			p.errs.Add(err)
			good = false
		}
	}
	return good
}

// match reports whether id matches a pattern of literal text, * and ?. path.Match does not work
// here, because task IDs contain slashes and brackets.
func match(pat, id string) bool {
	p, i, star, mark := 0, 0, -1, 0
	for i < len(id) {
		switch {
		case p < len(pat) && pat[p] == '*':
			star, mark = p, i
			p++
		case p < len(pat) && (pat[p] == '?' || pat[p] == id[i]):
			p++
			i++
		case star >= 0:
			mark++
			p, i = star+1, mark
		default:
			return false
		}
	}
	for p < len(pat) && pat[p] == '*' {
		p++
	}
	return p == len(pat)
}
