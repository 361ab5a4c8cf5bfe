package event

import "encoding/json"

// The shared kinds. Kinds that OpenHands has too use its names on the wire. An action and the
// observation that answers it may share a name, because the class is part of the key.
//
//	class        kind      meaning
//	action       run       a shell command
//	action       read      a look at a file or folder
//	action       edit      a change of a file
//	action       glob      a search for files by name
//	action       grep      a search for lines of files
//	action       tool      a call of a tool that has no kind of its own
//	action       think     a thought, answered on the host
//	action       finish    the agent says that it is done, answered on the host
//	action       invalid   a call that could not be parsed, answered with an error
//	observation  run       the result of a command
//	observation  read, edit   what the editor says
//	observation  glob, grep   what a search has found
//	observation  tool      the result of a tool
//	observation  think, finish   acknowledgements
//	observation  error     the action was not understood or could not be done
//	observation  lost      the attempt was closed before the action was answered
//	note         message   text from the user, the agent or the environment
//	note         system    the system prompt and tools of an actor
//	note         reply     a model's reply
//	note         put       files entered the sandbox from outside
//	note         late      a result that came after its action had been answered
//	note         lagged    a watcher missed events
//	note         info      a remark of the harness (a retry, a phase, a warning)
//	note         network_refused   an address that the network policy blocked
type (
	// Run is a command line for the sandbox's shell. If Args is set, it is a program to run without
	// a shell.
	//
	// With Session, the command line is for the actor's persistent shell, if the sandbox has one.
	// Input then types it for the program that is running; "C-c", "C-d" and "C-z" are keys. An empty
	// command returns more output. Blocking waits for the end or the timeout, also if nothing is
	// printed.
	Run struct {
		Command  string   `json:"command,omitempty"`
		Args     []string `json:"args,omitempty"`
		Dir      string   `json:"dir,omitempty"`
		User     string   `json:"user,omitempty"`
		Session  bool     `json:"session,omitempty"`
		Input    bool     `json:"is_input,omitempty"`
		Blocking bool     `json:"blocking,omitempty"`
	}

	// RunResult is the result of a command.
	RunResult struct {
		Code     int    `json:"code"`             // -1 if a signal or a timeout ended the command, or if it is running
		Signal   string `json:"signal,omitempty"` // SIGKILL …
		TimedOut bool   `json:"timed_out,omitempty"`
		OOM      bool   `json:"oom,omitempty"`
		Running  bool   `json:"running,omitempty"` // the command goes on in its session
		// Prefix and Suffix are remarks of a session for the model. They are not part of the output.
		Prefix string `json:"prefix,omitempty"`
		Suffix string `json:"suffix,omitempty"`
		// both streams in order, with the middle cut out if it is over the limit
		Output    string `json:"output,omitempty"`
		Stderr    string `json:"stderr,omitempty"` // only if the streams were kept apart
		OutBytes  int64  `json:"out_bytes,omitempty"`
		ErrBytes  int64  `json:"err_bytes,omitempty"`
		Truncated bool   `json:"truncated,omitempty"`
		Full      string `json:"full,omitempty"` // path of the complete output inside the sandbox
		Blob      *Blob  `json:"blob,omitempty"` // the complete output, if it was kept outside the sandbox
		Dir       string `json:"dir,omitempty"`  // working directory afterwards, if known
		WallMS    int64  `json:"wall_ms,omitempty"`
	}

	// Read views a text file, an image or a PDF, or the names in a folder.
	Read struct {
		Path  string `json:"path"`                 // absolute
		Lines []int  `json:"view_range,omitempty"` // the first and the last line; -1 is the file's last one
		// Plain: the text of a file as it is, without line numbers. The lines are those that there are
		// of view_range, and Path may be relative to the actor's directory.
		Plain bool `json:"plain,omitempty"`
	}

	// Write puts Text in the place of a text file's content, or of the lines Lines. The file is made,
	// with its folders, if it does not exist. Path may be relative to the actor's directory.
	Write struct {
		Path string `json:"path"`
		Text string `json:"text"`
		// Lines are the first and the last line to replace; -1 is the file's last one. The first may be
		// one beyond it, to add lines. A last line before the first: Text goes before the first.
		Lines []int `json:"lines,omitempty"`
	}

	// Edit changes a text file, as one of the commands EditCreate, EditReplace, EditInsert and
	// EditUndo.
	Edit struct {
		Command string `json:"command"`
		Path    string `json:"path"`           // absolute
		Text    string `json:"text,omitempty"` // of a new file, in the place of Old, or to be inserted
		Old     string `json:"old_str,omitempty"`
		Line    int    `json:"insert_line,omitempty"` // the line after which Text is inserted
	}

	// Viewed is the answer to Read, Edited that to Edit and Write.
	Viewed struct {
		Path  string `json:"path"`
		Text  string `json:"text"`
		Error bool   `json:"error,omitempty"` // Text says why the file cannot be viewed
		Blob  *Blob  `json:"blob,omitempty"`  // an image or a PDF
		// Of a plain Read: the number of the file's lines, and whether the end of the text is left out.
		LineCount int  `json:"line_count,omitempty"`
		Truncated bool `json:"truncated,omitempty"`
	}
	Edited struct {
		Of    string `json:"-"` // the kind of the action, which is also the kind of this event
		Path  string `json:"path"`
		Text  string `json:"text"`
		Error bool   `json:"error,omitempty"` // nothing was changed, and Text says why
		New   bool   `json:"new,omitempty"`   // there was no file before
	}

	// Glob finds files by name, and Grep lines of files by a regular expression (RE2), as ripgrep
	// does.
	Glob struct {
		Pattern string `json:"pattern"`
		Path    string `json:"path,omitempty"` // where to search; "": the actor's directory
	}
	Grep struct {
		Pattern    string `json:"pattern"`
		Path       string `json:"path,omitempty"`
		Include    string `json:"include,omitempty"` // a glob of the files that are searched
		IgnoreCase bool   `json:"ignore_case,omitempty"`
	}
	// Found is the answer to Glob and Grep.
	Found struct {
		Of    string `json:"-"` // the kind of the action, which is also the kind of this event
		Path  string `json:"path"`
		Hits  int    `json:"hits"`
		More  bool   `json:"more,omitempty"` // there are more hits than Text has
		Text  string `json:"text"`
		Error bool   `json:"error,omitempty"` // Text says why nothing was searched
	}

	ToolCall struct {
		Name string          `json:"name"`
		Args json.RawMessage `json:"args,omitempty"`
	}
	ToolResult struct {
		Name  string          `json:"name,omitempty"`
		Parts []Part          `json:"parts,omitempty"`
		Error bool            `json:"error,omitempty"` // the tool reported a failure
		Data  json.RawMessage `json:"data,omitempty"`
	}

	Think struct {
		Thought string `json:"thought"`
	}
	Finish struct {
		Message string          `json:"message,omitempty"`
		Outputs json.RawMessage `json:"outputs,omitempty"`
		GaveUp  bool            `json:"gave_up,omitempty"`
	}
	// Invalid is a call that names no tool of this session, or whose arguments cannot be parsed.
	Invalid struct {
		Name string `json:"name"`
		Args string `json:"args,omitempty"` // as the model wrote them; may not be JSON
		Why  string `json:"why"`
	}

	Ack struct { // answers think and finish
		Of   string `json:"-"` // the kind of the action, which is also the kind of this event
		Text string `json:"text,omitempty"`
	}
	Error struct {
		Code string `json:"code,omitempty"` // "invalid_call", "unknown_tool", "timeout", "unsupported", "internal" …
		Text string `json:"text"`
	}
	Lost struct {
		Why string `json:"why"`
	}

	Message struct {
		Parts []Part `json:"parts"`
	}
	System struct {
		Text  string   `json:"text"`
		Tools []string `json:"tools,omitempty"`
	}
	// Reply is a model's reply. The provider's raw response is kept with the record of the call.
	Reply struct {
		ID        string      `json:"id"`    // unique in the session; Call.Reply refers to it
		Role      string      `json:"role"`  // the session's model that replied: "main", "condenser" …
		Model     string      `json:"model"` // the name that the provider reported
		Parts     []Part      `json:"parts,omitempty"`
		Reasoning string      `json:"reasoning,omitempty"`
		Calls     []ReplyCall `json:"calls,omitempty"`
		Stop      string      `json:"stop,omitempty"`
		Usage     Usage       `json:"usage"`
		// Opaque is data that the vendor expects back in the next request, such as signed
		// reasoning.
		Opaque json.RawMessage `json:"opaque,omitempty"`
	}
	// A ReplyCall is a tool call inside a reply. Args is the text that the model wrote; it may not
	// be JSON.
	ReplyCall struct {
		ID   string `json:"id"`
		Name string `json:"name"`
		Args string `json:"args"`
	}

	Put struct {
		Dir   string `json:"dir"`
		Files int    `json:"files"`
		Bytes int64  `json:"bytes"`
	}
	// NetworkRefused is an address that a machine tried to reach and its network policy does not
	// allow. It is recorded at the end of a stage and of its grading. Count is the number of
	// attempts since the last such note.
	NetworkRefused struct {
		Role  string `json:"role"`           // role of the machine: agent, grader
		Host  string `json:"host"`           // as it was requested; untrusted
		Port  int    `json:"port,omitempty"` // 0 for a name lookup
		Why   string `json:"why"`
		Count int64  `json:"count"`
	}
	// Late keeps an observation that came after its action had been answered.
	Late struct {
		Action int64           `json:"action"`
		Was    string          `json:"was"` // the kind of the observation
		Body   json.RawMessage `json:"body"`
	}
	Lagged struct {
		From int64 `json:"from"` // first missed event
		N    int64 `json:"n"`
	}
	Info struct {
		What string          `json:"what"`
		Text string          `json:"text,omitempty"`
		Data json.RawMessage `json:"data,omitempty"`
	}
)

// Usage counts tokens. Cached and CacheWrite are parts of In, Reasoning is a part of Out. Cost is
// nil if it is not known. In that case limits and budgets use Counted, an upper estimate, which is
// nil if there is no estimate either. Unpriced says why the cost is not known: "usage" if the
// service does not report the usage of the reply, else the missing keys of the model's price.
type Usage struct {
	In         int64    `json:"in,omitempty"`
	Out        int64    `json:"out,omitempty"`
	Cached     int64    `json:"cached,omitempty"`
	CacheWrite int64    `json:"cache_write,omitempty"`
	Reasoning  int64    `json:"reasoning,omitempty"`
	Cost       *float64 `json:"cost,omitempty"` // US dollars
	Counted    *float64 `json:"counted,omitempty"`
	Unpriced   string   `json:"unpriced,omitempty"` // "cached", "in,out"
}

// Silent reports whether the service did not report the usage of a reply; empty says whether the
// reply is empty. There is no empty prompt, and a reply that is not empty has output tokens.
func (u Usage) Silent(empty bool) bool { return u.In <= 0 || u.Out <= 0 && !empty }

// USD returns the cost that limits and budgets count, and false if it is not known.
func (u Usage) USD() (float64, bool) {
	switch {
	case u.Cost != nil:
		return *u.Cost, true
	case u.Counted != nil:
		return *u.Counted, true
	}
	return 0, false
}

// Commands of [Edit].
const (
	EditCreate  = "create"
	EditReplace = "str_replace"
	EditInsert  = "insert"
	EditUndo    = "undo_edit"
)

func (Run) Kind() string            { return "run" }
func (Read) Kind() string           { return "read" }
func (Edit) Kind() string           { return "edit" }
func (Write) Kind() string          { return "write" }
func (Glob) Kind() string           { return "glob" }
func (Grep) Kind() string           { return "grep" }
func (f Found) Kind() string        { return f.Of }
func (Viewed) Kind() string         { return "read" }
func (e Edited) Kind() string       { return e.Of }
func (RunResult) Kind() string      { return "run" }
func (ToolCall) Kind() string       { return "tool" }
func (ToolResult) Kind() string     { return "tool" }
func (Think) Kind() string          { return "think" }
func (Finish) Kind() string         { return "finish" }
func (Invalid) Kind() string        { return "invalid" }
func (a Ack) Kind() string          { return a.Of }
func (Error) Kind() string          { return "error" }
func (Lost) Kind() string           { return "lost" }
func (Message) Kind() string        { return "message" }
func (System) Kind() string         { return "system" }
func (Reply) Kind() string          { return "reply" }
func (NetworkRefused) Kind() string { return "network_refused" }
func (Put) Kind() string            { return "put" }
func (Late) Kind() string           { return "late" }
func (Lagged) Kind() string         { return "lagged" }
func (Info) Kind() string           { return "info" }

func (Run) Class() Class            { return Action }
func (Read) Class() Class           { return Action }
func (Edit) Class() Class           { return Action }
func (Write) Class() Class          { return Action }
func (Glob) Class() Class           { return Action }
func (Grep) Class() Class           { return Action }
func (Found) Class() Class          { return Observation }
func (Viewed) Class() Class         { return Observation }
func (Edited) Class() Class         { return Observation }
func (ToolCall) Class() Class       { return Action }
func (Think) Class() Class          { return Action }
func (Finish) Class() Class         { return Action }
func (Invalid) Class() Class        { return Action }
func (RunResult) Class() Class      { return Observation }
func (ToolResult) Class() Class     { return Observation }
func (Ack) Class() Class            { return Observation }
func (Error) Class() Class          { return Observation }
func (Lost) Class() Class           { return Observation }
func (Message) Class() Class        { return Note }
func (System) Class() Class         { return Note }
func (Reply) Class() Class          { return Note }
func (NetworkRefused) Class() Class { return Note }
func (Put) Class() Class            { return Note }
func (Late) Class() Class           { return Note }
func (Lagged) Class() Class         { return Note }
func (Info) Class() Class           { return Note }
