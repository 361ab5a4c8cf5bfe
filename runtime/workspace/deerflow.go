package workspace

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// ToolSets returns the sets of tools whose calls the workspace executes, for a stage of an episode.
//
// The set "deerflow" has the tools of DeerFlow's sandbox, with its parameters, limits and forms of
// results: bash, ls, glob, grep, read_file, write_file and str_replace. A file that exists is changed
// only if it was read, and has not changed since. Unlike DeerFlow's, str_replace refuses a text that
// occurs several times.
//
// Before the first call it makes the folders workspace, uploads and outputs in /mnt/user-data. The
// working directory stays that of the options; only if they name none, it is
// /mnt/user-data/workspace. A path must not have "..". Below /mnt/user-data, also links may only
// lead into the three folders.
//
// Each command is audited: the result's Data says what DeerFlow's rules make of it. A command that
// they forbid is refused only in a sandbox without isolation. There the guards of DeerFlow's local
// sandbox apply, too, and all paths must be in its folders or in the working directory.
func (w *Workspace) ToolSets() map[string][]agent.Tool {
	var set []agent.Tool
	for _, t := range deerflow {
		doc := t.doc
		if t.name == "read_file" && w.options.Skills != "" {
			doc += " The task's skills are in " + skillsDir + "."
		}
		set = append(set, agent.Tool{Name: t.name, Description: doc, Schema: json.RawMessage(t.schema)})
	}
	return map[string][]agent.Tool{"deerflow": set}
}

// Limits of DeerFlow's tools, in characters if nothing else is said.
const (
	bashTime     = 600 * time.Second
	bashLength   = 10_000
	bashOutput   = 20_000
	bashStream   = 1 << 20 // bytes of each stream that are read; their middle is left out
	lsOutput     = 20_000
	lsNames      = 500
	readOutput   = 50_000
	writeBytes   = 80 << 10
	globDefault  = 200
	globMost     = 1000
	grepDefault  = 100
	grepMost     = 500
	grepWidth    = 200
	maxErrorText = 2000
)

// A deerflowTool carries out a call. An error is told to the model.
type deerflowTool struct {
	name, doc, schema string
	do                func(c *deerflowCall) (string, error)
}

var deerflow = []deerflowTool{
	{"bash", `Runs a command line in a new bash shell in the working directory and returns what it prints. Its ` +
		`input is empty, and it is ended after 10 minutes. In /mnt/user-data there are three more folders: workspace for ` +
		`drafts, uploads for files that you are given, and outputs, where long results of tools are kept.`,
		object(`"command":{"type":"string","description":"The command line."}`, "command"), (*deerflowCall).bash},
	{"ls", `Lists what is in a folder, two levels deep. Folders end with a slash.`,
		object(`"path":{"type":"string","description":"The absolute path of the folder."}`, "path"),
		(*deerflowCall).ls},
	{"glob", `Finds files by name below a folder. Folders such as .git and node_modules are left out.`,
		object(`"pattern":{"type":"string","description":"The glob, such as **/*.py."},`+
			`"path":{"type":"string","description":"The absolute path of the folder."},`+
			`"include_dirs":{"type":"boolean","description":"Find folders, too. Default false."},`+
			`"max_results":{"type":"integer","description":"Results at most. Default 200, at most 1000."}`,
			"pattern", "path"), (*deerflowCall).glob},
	{"grep", `Finds lines in the text files below a folder, or in one file. Folders such as .git and node_modules are ` +
		`left out, and files over 1 MB.`,
		object(`"pattern":{"type":"string","description":"The regular expression (RE2)."},`+
			`"path":{"type":"string","description":"The absolute path of the folder or file."},`+
			`"glob":{"type":"string","description":"Search only files that match it, such as **/*.py."},`+
			`"literal":{"type":"boolean","description":"The pattern is plain text. Default false."},`+
			`"case_sensitive":{"type":"boolean","description":"Default false."},`+
			`"max_results":{"type":"integer","description":"Results at most. Default 100, at most 500."}`,
			"pattern", "path"), (*deerflowCall).grep},
	{"read_file", `Reads a text file, or some of its lines.`,
		object(`"path":{"type":"string","description":"The absolute path of the file."},`+
			`"start_line":{"type":"integer","description":"The first line, from 1."},`+
			`"end_line":{"type":"integer","description":"The last line."}`, "path"), (*deerflowCall).read},
	{"write_file", `Writes a text file, with its folders. A file that exists must have been read before. One call ` +
		`writes at most 80 KB; write more in parts, with append.`,
		object(`"path":{"type":"string","description":"The absolute path of the file."},`+
			`"content":{"type":"string","description":"The text."},`+
			`"append":{"type":"boolean","description":"Put the text at the end of the file. Default false."}`,
			"path", "content"), (*deerflowCall).write},
	{"str_replace", `Replaces a text in a file, which must have been read before. The text must occur exactly once, ` +
		`unless replace_all is set.`,
		object(`"path":{"type":"string","description":"The absolute path of the file."},`+
			`"old_str":{"type":"string","description":"The text to replace."},`+
			`"new_str":{"type":"string","description":"The new text."},`+
			`"replace_all":{"type":"boolean","description":"Replace all occurrences. Default false."}`,
			"path", "old_str", "new_str"), (*deerflowCall).replace},
}

// object returns the schema of a tool's parameters. The first of all tools is why they are called.
func object(properties string, required ...string) string {
	return `{"type":"object","properties":{"description":{"type":"string","description":"Why, in a few words."},` +
		properties + `},"required":["description","` + strings.Join(required, `","`) + `"]}`
}

// A deerflowCall is a call that is carried out.
type deerflowCall struct {
	ctx    context.Context
	w      *Workspace
	action event.Event
	args   deerflowArgs
	within []string // see sandbox.FileOp
	audit  *audit   // of a command
}

type deerflowArgs struct {
	Command       string `json:"command"`
	Path          string `json:"path"`
	Pattern       string `json:"pattern"`
	Glob          string `json:"glob"`
	Dirs          bool   `json:"include_dirs"`
	Literal       bool   `json:"literal"`
	CaseSensitive bool   `json:"case_sensitive"`
	Max           int    `json:"max_results"`
	Start         *int   `json:"start_line"`
	End           *int   `json:"end_line"`
	Content       string `json:"content"`
	Append        bool   `json:"append"`
	Old           string `json:"old_str"`
	New           string `json:"new_str"`
	All           bool   `json:"replace_all"`
}

// A told is an error whose text is for the model.
type told string

func (t told) Error() string { return string(t) }

func (w *Workspace) callDeerFlow(ctx context.Context, a event.Event, t deerflowTool, call event.ToolCall) (event.Body,
	error) {
	c := &deerflowCall{ctx: ctx, w: w, action: a}
	text, err := c.run(t, call.Args)
	res := event.ToolResult{Name: call.Name}
	var say told
	if errors.As(err, &say) {
		text, err, res.Error = cutMiddle("Error: "+string(say), maxErrorText), nil, true
	}
	if err != nil {
		return nil, err
	}
	res.Parts = event.Text(clean([]byte(text)))
	if c.audit != nil {
		if res.Data, err = json.Marshal(map[string]*audit{"audit": c.audit}); err != nil {
			return nil, err
		}
	}
	return res, nil
}

// run carries out a call.
func (c *deerflowCall) run(t deerflowTool, args json.RawMessage) (string, error) {
	hasPath, err := c.parse(args, t.schema)
	if err != nil {
		return "", err
	}
	if err := c.w.makeFolders(c.ctx); err != nil {
		return "", err
	}
	if hasPath {
		if err := c.place(t.name == "write_file" || t.name == "str_replace"); err != nil {
			return "", err
		}
	}
	text, err := t.do(c)
	if err != nil {
		return "", err
	}
	return c.budget(t.name, text)
}

// parse reads the arguments, and refuses a call without one that it needs. It reports whether one
// is a path.
func (c *deerflowCall) parse(args json.RawMessage, schema string) (hasPath bool, err error) {
	var s struct {
		Properties map[string]json.RawMessage `json:"properties"`
		Required   []string                   `json:"required"`
	}
	if err := json.Unmarshal([]byte(schema), &s); err != nil {
		return false, err
	}
	var given map[string]json.RawMessage
	if err := json.Unmarshal(args, &given); err != nil {
		return false, told("the arguments are no JSON object")
	}
	for name := range given {
		if s.Properties[name] == nil {
			return false, told(fmt.Sprintf("there is no argument %q", name[:min(len(name), 100)]))
		}
	}
	for _, name := range s.Required {
		if name != "description" && given[name] == nil {
			return false, told(name + " is missing")
		}
	}
	var wrong *json.UnmarshalTypeError
	if err := json.Unmarshal(args, &c.args); errors.As(err, &wrong) {
		return false, told(fmt.Sprintf("%s has the wrong type, %s", wrong.Field, wrong.Value))
	} else if err != nil {
		return false, told(err.Error())
	}
	return s.Properties["path"] != nil, nil
}

// op carries out a file operation.
func (c *deerflowCall) op(op sandbox.FileOp) (res sandbox.FileResult, err error) {
	op.Path, op.Within = c.args.Path, c.within
	res, why, err := c.w.fileOp(c.ctx, c.action.Actor, op)
	if err != nil {
		return res, err
	}
	if e, ok := why.(event.Error); ok {
		return res, told(e.Text)
	}
	if res.Error {
		return res, told(res.Text)
	}
	return res, nil
}

func (c *deerflowCall) bash() (string, error) {
	command := c.args.Command
	if err := c.allowed(command); err != nil {
		return "", err
	}
	sb, err := c.w.get(c.ctx)
	if err != nil {
		return "", err
	}
	limit := bashTime
	if m := c.w.options.MaxTimeout; m > 0 {
		limit = min(limit, m)
	}
	// A directory makes it a command that changes no directory of the next.
	dir := "."
	if c.w.options.Dir == "" {
		dir = userFolders[0]
	}
	j := &job{w: c.w, sb: sb, run: event.Run{Command: command, Dir: dir}, actor: c.action.Actor, timeout: limit,
		apart: true}
	if c.action.ID >= 0 {
		j.id = fmt.Sprintf("step-%d", c.action.ID)
	}
	body, err := j.do(c.ctx)
	if err != nil {
		return "", err
	}
	r, ok := body.(event.RunResult)
	if !ok {
		return "", fmt.Errorf("a command was answered with %T", body)
	}
	text := r.Output
	line := func(s string) {
		if text != "" && !strings.HasSuffix(text, "\n") {
			text += "\n"
		}
		text += s
	}
	if r.Stderr != "" {
		line("Std Error:\n" + r.Stderr)
	}
	switch {
	case r.TimedOut:
		line(fmt.Sprintf("The command was ended: it took more than %v.", limit))
	case r.OOM:
		line("The command was killed: it used more memory than it may.")
	case r.Signal != "":
		line("The command was ended by signal " + r.Signal + ".")
	case r.Code != 0:
		line(fmt.Sprintf("Exit Code: %d", r.Code))
	}
	if text == "" {
		text = "(no output)"
	}
	for _, warning := range c.audit.notes() {
		line("(Note: " + warning + ".)")
	}
	return cutMiddle(text, bashOutput), nil
}

// allowed audits a command. Where nothing is isolated, a command that is forbidden, or that does not
// pass the guards, may not run.
func (c *deerflowCall) allowed(command string) error {
	refuse := func(rule, format string, args ...any) error {
		if c.audit = (&audit{Verdict: auditBlock}); rule != "" {
			c.audit.Rules = []string{rule}
		}
		return told(fmt.Sprintf(format, args...))
	}
	switch {
	case strings.TrimSpace(command) == "":
		return refuse("empty", "the command is empty")
	case utf8.RuneCountInString(command) > bashLength:
		return refuse("too-long", "the command is longer than %d characters; write it to a file first", bashLength)
	case strings.ContainsRune(command, 0):
		return refuse("nul", "the command has a NUL byte")
	}
	found := check(command)
	c.audit = &found
	if c.w.hostRoot() != "" {
		if found.Verdict == auditBlock {
			return told("the command is refused, because nothing is isolated here: " + strings.Join(found.Rules, ", "))
		}
		if why := guard(command, c.w.mapped()); why != "" {
			return refuse("guard", "the command is refused, because nothing is isolated here: %s", why)
		}
	}
	c.audit.Ran = true
	return nil
}

func (c *deerflowCall) ls() (string, error) {
	res, err := c.op(sandbox.FileOp{Op: sandbox.FileGlob,
		Search: &sandbox.Search{Pattern: "/{*,*/*}", Dirs: true, DeerFlow: true, Max: lsNames}})
	if err != nil {
		return "", err
	}
	if len(res.Hits) == 0 {
		return "(empty)", nil
	}
	var b strings.Builder
	for i, h := range res.Hits {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(h.Path)
	}
	text := cutHead(b.String(), utf8.RuneCountInString(b.String()), lsOutput, "Use a more specific path")
	if res.More {
		text += fmt.Sprintf("\n(only the first %d names)", len(res.Hits))
	}
	return text + note(res), nil
}

// note returns a remark of a search, such as on folders that could not be read.
func note(res sandbox.FileResult) string {
	if res.Text == "" {
		return ""
	}
	return "\n(" + res.Text + ")"
}

func (c *deerflowCall) glob() (string, error) {
	res, err := c.op(sandbox.FileOp{Op: sandbox.FileGlob, Search: &sandbox.Search{Pattern: c.args.Pattern,
		Dirs: c.args.Dirs, DeerFlow: true, Max: atMost(c.args.Max, globDefault, globMost)}})
	if err != nil {
		return "", err
	}
	if len(res.Hits) == 0 {
		return "No files matched under " + c.args.Path + note(res), nil
	}
	return c.found(res, "paths", func(i int, h sandbox.Hit) string { return fmt.Sprintf("%d. %s", i+1, h.Path) }), nil
}

func (c *deerflowCall) grep() (string, error) {
	res, err := c.op(sandbox.FileOp{Op: sandbox.FileGrep, Search: &sandbox.Search{Pattern: c.args.Pattern,
		Files: c.args.Glob, Literal: c.args.Literal, IgnoreCase: !c.args.CaseSensitive, DeerFlow: true, Width: grepWidth,
		Max: atMost(c.args.Max, grepDefault, grepMost)}})
	if err != nil {
		return "", err
	}
	if len(res.Hits) == 0 {
		return "No matches found under " + c.args.Path + note(res), nil
	}
	return c.found(res, "matches",
		func(_ int, h sandbox.Hit) string { return fmt.Sprintf("%s:%d: %s", h.Path, h.Line, h.Text) }), nil
}

// found describes the hits of a search, each by a line.
func (c *deerflowCall) found(res sandbox.FileResult, what string, line func(i int, h sandbox.Hit) string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Found %d %s under %s", len(res.Hits), what, c.args.Path)
	if res.More {
		fmt.Fprintf(&b, " (showing first %d)", len(res.Hits))
	}
	for i, h := range res.Hits {
		b.WriteString("\n" + line(i, h))
	}
	if res.More {
		b.WriteString("\nThere are more. Search a smaller folder or for a narrower pattern.")
	}
	return b.String() + note(res)
}

func atMost(n, usual, most int) int {
	if n <= 0 {
		return usual
	}
	return min(n, most)
}

func (c *deerflowCall) read() (string, error) {
	start, end := 1, -1
	if c.args.Start != nil {
		start = *c.args.Start
	}
	if c.args.End != nil {
		end = *c.args.End
		switch {
		case end < 1:
			return "(end_line must be at least 1)", nil
		case start > end:
			return "(start_line is after end_line)", nil
		}
	}
	if start < 1 {
		return "(start_line must be at least 1)", nil
	}
	res, err := c.op(sandbox.FileOp{Op: sandbox.FileRead, Lines: []int{start, end}})
	if err != nil {
		return "", err
	}
	c.w.read(c.action.Actor, c.args.Path, res.Sum)
	switch {
	case res.LineCount == 0:
		return "(empty)", nil
	case start > res.LineCount:
		return fmt.Sprintf("(the file has %d lines)", res.LineCount), nil
	}
	return cutHead(res.Text, res.Chars, readOutput, "Use start_line and end_line to read a part"), nil
}

func (c *deerflowCall) write() (string, error) {
	op := sandbox.FileOp{Op: sandbox.FileWrite, Text: c.hosted(c.args.Content),
		Known: c.w.sumOf(c.action.Actor, c.args.Path)}
	if c.args.Append {
		op.Op = sandbox.FileAppend
	} else if n := len(c.args.Content); n > writeBytes {
		return "", told(fmt.Sprintf("the text has %d bytes, and one call writes at most %d; write it in parts, with append, "+
			"or change parts of the file with str_replace", n, writeBytes))
	}
	if _, err := c.op(op); err != nil {
		return "", err
	}
	return "OK", nil
}

func (c *deerflowCall) replace() (string, error) {
	if c.args.Old == "" {
		return "OK", nil // as with DeerFlow
	}
	op := sandbox.FileOp{Op: sandbox.FileReplace, Old: c.args.Old, Text: c.hosted(c.args.New), All: c.args.All,
		Known: c.w.sumOf(c.action.Actor, c.args.Path)}
	if old := c.hosted(op.Old); old != op.Old { // as write has written it
		mapped := op
		mapped.Old = old
		if _, err := c.op(mapped); err == nil {
			return "OK", nil
		}
	}
	if _, err := c.op(op); err != nil {
		return "", err
	}
	return "OK", nil
}

// hosted returns the content of a file, such as a script, with paths in DeerFlow's folders as
// programs need them without isolation. Reading shows them as they were.
func (c *deerflowCall) hosted(text string) string {
	return c.w.hostRoot().Content(text, userData, skillsRoot)
}

// maxKnown limits the files that are known as they were read.
const maxKnown = 10_000

// read remembers what an actor has read of a file.
func (w *Workspace) read(actor, name, sum string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.known) >= maxKnown {
		clear(w.known) // they have to be read again
	}
	w.known[actor+"\x00"+name] = sum
}

func (w *Workspace) sumOf(actor, name string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s := w.known[actor+"\x00"+name]; s != "" {
		return s
	}
	return sandbox.Unread
}

// cutMiddle returns a text of at most limit characters (0: no limit): if it is longer, its beginning
// and its end, with a line between them that says how many characters are left out.
func cutMiddle(text string, limit int) string {
	n := utf8.RuneCountInString(text)
	if limit <= 0 || n <= limit {
		return text
	}
	marker := func(skipped int) string {
		return fmt.Sprintf("\n... [middle truncated: %d chars skipped] ...\n", skipped)
	}
	kept := max(0, limit-len(marker(n)))
	if kept == 0 {
		return chars(text, limit)
	}
	head := kept / 2
	all := []rune(text)
	return string(all[:head]) + marker(n-kept) + string(all[n-(kept-head):])
}

// cutHead returns the beginning of a text of n characters, of which text has those that count, in at
// most limit characters.
func cutHead(text string, n, limit int, hint string) string {
	if limit <= 0 || n <= limit {
		return text
	}
	marker := func(k int) string {
		return fmt.Sprintf("\n... [truncated: showing first %d of %d chars. %s] ...", k, n, hint)
	}
	kept := max(0, limit-utf8.RuneCountInString(marker(n)))
	if kept == 0 {
		return chars(text, limit)
	}
	return chars(text, kept) + marker(kept)
}

// chars returns the first n characters.
func chars(text string, n int) string {
	for i := range text {
		if n--; n < 0 {
			return text[:i]
		}
	}
	return text
}
