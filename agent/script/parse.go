package script

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/datasets/nesting"
	"github.com/evalrun/evalrun/internal/fsutil"
)

// Load reads and parses a file.
func Load(name string) (*Script, error) {
	data, err := fsutil.ReadFile(name, 0)
	if err != nil {
		return nil, fmt.Errorf("script: %w", err)
	}
	return Parse(name, data)
}

// Parse reads rules: a rule a line when name ends in .jsonl, else YAML. All mistakes are reported
// at once, each with its place.
func Parse(name string, data []byte) (*Script, error) {
	p := &parse{name: name}
	if i := badUTF8(data); i >= 0 {
		p.fail(1+bytes.Count(data[:i], []byte("\n")), "not UTF-8; bytes of any kind are written by a command, such as printf '\\377'")
		return nil, p.errs[0]
	}
	if strings.HasSuffix(name, ".jsonl") {
		p.jsonl(data)
	} else {
		p.yaml(data)
	}
	if len(p.rules) == 0 && len(p.errs) == 0 {
		p.fail(0, "no rules; a rule looks like {\"task\": \"*\", \"do\": [{\"finish\": \"42\"}]}")
	}
	if len(p.errs) > 0 {
		return nil, errors.Join(p.errs...)
	}
	return &Script{name: name, rules: p.rules}, nil
}

type parse struct {
	name  string
	rules []rule
	errs  []error
}

func (p *parse) fail(line int, format string, args ...any) {
	place := p.name
	if line > 0 {
		place = fmt.Sprintf("%s:%d", p.name, line)
	}
	p.errs = append(p.errs, fmt.Errorf("%s: %s", place, fmt.Sprintf(format, args...)))
}

// A node is a JSON value with the line where it begins. YAML becomes nodes too, so that both forms
// have one reader.
type node struct {
	line int
	keys []string        // of an object, in order
	vals []node          // of an object, or of a list
	list bool            // a list
	raw  json.RawMessage // the whole value
}

func (n node) get(key string) (node, bool) {
	i := slices.Index(n.keys, key)
	if i < 0 {
		return node{}, false
	}
	return n.vals[i], true
}

func (p *parse) jsonl(data []byte) {
	for i, line := range bytes.Split(data, []byte("\n")) {
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		n, err := fromJSON(line, i+1)
		if err != nil {
			p.fail(i+1, "not JSON: %v", err)
			continue
		}
		p.rule(n)
	}
}

func (p *parse) yaml(data []byte) {
	if line, _ := nesting.Deep(data, maxDepth); line > 0 {
		p.fail(line, "nested deeper than %d", maxDepth)
		return
	}
	f, err := parser.ParseBytes(data, 0)
	if err != nil {
		line, text := 0, err.Error()
		if e := yaml.Error(nil); errors.As(err, &e) {
			text = e.GetMessage()
			if t := e.GetToken(); t != nil {
				line = t.Position.Line
			}
		}
		p.fail(line, "%s", text)
		return
	}
	for _, doc := range f.Docs {
		if doc.Body == nil {
			continue
		}
		n, err := fromYAML(doc.Body)
		if err != nil {
			p.errs = append(p.errs, fmt.Errorf("%s:%w", p.name, err))
			continue
		}
		if !n.list {
			p.fail(n.line, "want a list of rules")
			continue
		}
		for _, r := range n.vals {
			p.rule(r)
		}
	}
}

// maxDepth of values within values on one line.
const maxDepth = 100

func (p *parse) rule(n node) {
	before := len(p.errs)
	var r rule
	if !p.known(n, "a rule", "task", "stage", "do") {
		return
	}
	r.task = func(string) bool { return true }
	if v, ok := n.get("task"); ok {
		var pat string
		if err := json.Unmarshal(v.raw, &pat); err != nil || pat == "" {
			p.fail(v.line, "task: want a pattern such as \"greet-*\", not %s", v.raw)
		} else {
			r.task = func(id string) bool { return match(pat, id) }
		}
	}
	if v, ok := n.get("stage"); ok {
		if err := json.Unmarshal(v.raw, &r.stage); err != nil || r.stage < 1 {
			p.fail(v.line, "stage: want a number from 1, not %s", v.raw)
		}
	}
	do, ok := n.get("do")
	if !ok {
		p.fail(n.line, "a rule needs do: the list of its steps")
		return
	}
	r.steps = p.steps(do)
	if len(p.errs) == before {
		p.rules = append(p.rules, r)
	}
}

func (p *parse) steps(n node) []step {
	if !n.list {
		p.fail(n.line, "do: want a list of steps")
		return nil
	}
	out := make([]step, 0, len(n.vals))
	for _, v := range n.vals {
		out = append(out, p.step(v))
	}
	return out
}

var kinds = []string{"run", "browse", "tool", "action", "think", "ask", "sleep", "fail", "panic", "finish", "do"}

func (p *parse) step(n node) (st step) {
	if !p.known(n, "a step", append([]string{"times"}, kinds...)...) {
		return st
	}
	if v, ok := n.get("times"); ok {
		if err := json.Unmarshal(v.raw, &st.times); err != nil || st.times < 1 {
			p.fail(v.line, "times: want a number from 1, not %s", v.raw)
		}
	}
	var kind string
	for _, k := range n.keys {
		if k == "times" {
			continue
		}
		if kind != "" {
			p.fail(n.line, "a step is one thing, not %s and %s", kind, k)
			return st
		}
		kind = k
	}
	v, _ := n.get(kind)
	before := len(p.errs)
	bad := func(err error) {
		if err != nil {
			p.fail(v.line, "%s: %s", kind, jsonError(err))
		}
	}
	need := func(ok bool, what string) {
		if !ok && len(p.errs) == before {
			p.fail(v.line, "%s: want %s", kind, what)
		}
	}
	switch kind {
	case "":
		p.fail(n.line, "a step needs one of %s", strings.Join(kinds, ", "))
	case "run":
		var r rawRun
		bad(either(v, &r.Command, &r))
		need((r.Command == "") != (len(r.Args) == 0), "either a command line or args")
		st.body, st.timeout = event.Run{Command: r.Command, Args: r.Args, Dir: r.Dir, User: r.User}, r.Timeout.std()
	case "browse":
		var r rawBrowse
		bad(either(v, &r.Code, &r))
		need(r.Code == "" || r.URL == "", "either code or url")
		st.body, st.timeout = event.Browse{Code: r.Code}, r.Timeout.std()
		if r.URL != "" {
			st.body = event.BrowseURL{URL: r.URL}
		}
	case "tool":
		var r rawTool
		bad(either(v, &r.Name, &r))
		need(r.Name != "", "a name")
		st.body, st.timeout = event.ToolCall{Name: r.Name, Args: r.Args}, r.Timeout.std()
	case "action":
		var r rawAction
		bad(strict(v.raw, &r))
		need(r.Kind != "", "a kind")
		b, err := event.Default.DecodeBody(event.Action, r.Kind, r.Body)
		bad(err)
		st.body, st.timeout = b, r.Timeout.std()
	case "think":
		var s string
		bad(strict(v.raw, &s))
		st.body = event.Think{Thought: s}
	case "ask":
		var r rawAsk
		bad(either(v, &r.Text, &r))
		need(r.Text != "", "a text")
		if r.Role == "" {
			r.Role = "main"
		}
		st.ask = &ask{role: r.Role, text: r.Text}
	case "sleep":
		var d duration
		bad(strict(v.raw, &d))
		st.sleep = d.std()
	case "fail", "panic":
		var s string
		bad(strict(v.raw, &s))
		need(s != "", "a text")
		if kind == "fail" {
			st.fail = s
		} else {
			st.panic = s
		}
	case "finish":
		var r rawFinish
		bad(either(v, &r.Message, &r))
		st.finish = &event.Finish{Message: r.Message, GaveUp: r.GaveUp, Outputs: r.Outputs}
	case "do":
		st.group = p.steps(v)
	}
	return st
}

// known reports whether n is an object with none but these keys.
func (p *parse) known(n node, what string, keys ...string) bool {
	if n.keys == nil {
		p.fail(n.line, "%s is an object with keys such as %s", what, strings.Join(keys, ", "))
		return false
	}
	good := true
	for i, k := range n.keys {
		if !slices.Contains(keys, k) {
			p.fail(n.vals[i].line, "unknown key %q in %s; known are %s", k, what, strings.Join(keys, ", "))
			good = false
		}
	}
	return good
}

// either decodes the short form (a string) or the long one (an object).
func either(n node, short *string, long any) error {
	if n.keys == nil {
		return strict(n.raw, short)
	}
	return strict(n.raw, long)
}

func strict(raw []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	return dec.Decode(v)
}

// jsonError says in the words of a file what encoding/json says in those of Go.
func jsonError(err error) string {
	if e := (*json.UnmarshalTypeError)(nil); errors.As(err, &e) {
		want := map[string]string{"string": "a text", "[]string": "a list of texts", "int": "a number", "bool": "true or false"}[e.Type.String()]
		if want == "" {
			want = "an object"
		}
		if e.Field != "" {
			return fmt.Sprintf("%s: want %s, not a %s", e.Field, want, e.Value)
		}
		return fmt.Sprintf("want %s, not a %s", want, e.Value)
	}
	return strings.TrimPrefix(err.Error(), "json: ")
}

// match reports whether id fits a pattern of literal text, * and ?. Task IDs hold slashes and
// brackets, so path.Match will not do.
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

func fromJSON(data []byte, line int) (node, error) {
	if !json.Valid(data) {
		var v any
		return node{}, json.Unmarshal(data, &v)
	}
	n := node{line: line, raw: data}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	t, err := dec.Token()
	if err != nil {
		return n, err
	}
	d, ok := t.(json.Delim)
	if !ok {
		return n, nil
	}
	n.list = d == '['
	if !n.list {
		n.keys = []string{}
	}
	for dec.More() {
		if !n.list {
			k, err := dec.Token()
			if err != nil {
				return n, err
			}
			n.keys = append(n.keys, k.(string))
		}
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return n, err
		}
		v, err := fromJSON(raw, line)
		if err != nil {
			return n, err
		}
		n.vals = append(n.vals, v)
	}
	return n, duplicates(n.keys)
}

// fromYAML keeps what a node says, as JSON, and where it says it. Its errors begin with their line.
func fromYAML(y ast.Node) (node, error) {
	n := node{line: y.GetToken().Position.Line}
	switch y := y.(type) {
	case *ast.MappingNode:
		n.keys = []string{}
		raw := map[string]json.RawMessage{}
		if len(y.Values) > 0 {
			n.line = y.Values[0].Key.GetToken().Position.Line
		}
		for _, kv := range y.Values {
			k := kv.Key.GetToken()
			v, err := fromYAML(kv.Value)
			if err != nil {
				return n, err
			}
			v.line = max(v.line, k.Position.Line)
			n.keys, n.vals = append(n.keys, k.Value), append(n.vals, v)
			raw[k.Value] = v.raw
		}
		if err := duplicates(n.keys); err != nil {
			return n, fmt.Errorf("%d: %w", n.line, err)
		}
		b, err := json.Marshal(raw)
		n.raw = b
		return n, err
	case *ast.MappingValueNode:
		return fromYAML(ast.Mapping(token.MappingStart("{", y.GetToken().Position), false, y))
	case *ast.SequenceNode:
		n.list = true
		raws := []json.RawMessage{}
		for _, e := range y.Values {
			v, err := fromYAML(e)
			if err != nil {
				return n, err
			}
			n.vals = append(n.vals, v)
			raws = append(raws, v.raw)
		}
		b, err := json.Marshal(raws)
		n.raw = b
		return n, err
	case *ast.AnchorNode, *ast.AliasNode:
		return n, fmt.Errorf("%d: anchors and aliases are not supported here", n.line)
	}
	var v any
	if err := yaml.NodeToValue(y, &v); err != nil {
		return n, fmt.Errorf("%d: %w", n.line, err)
	}
	b, err := json.Marshal(v)
	if err != nil {
		return n, fmt.Errorf("%d: %w", n.line, err)
	}
	n.raw = b
	return n, nil
}

func duplicates(keys []string) error {
	for i, k := range keys {
		if slices.Contains(keys[:i], k) {
			return fmt.Errorf("key %q twice", k)
		}
	}
	return nil
}

// badUTF8 is the place of the first byte that is no part of a character, or -1.
func badUTF8(data []byte) int {
	for i := 0; i < len(data); {
		r, n := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return -1
}
