package event

import "encoding/json"

// The shared kinds. Wire names follow OpenHands where it has the kind; an action and the
// observation that answers it may share a name, since the class is part of the key.
//
//	class        kind      meaning
//	action       run       a shell command
//	action       tool      a call of a tool without a kind of its own
//	action       think     a thought, answered on the host
//	action       finish    the agent says that it is done, answered on the host
//	action       invalid   a call that could not be understood, answered with an error
//	observation  run       what became of a command
//	observation  tool      a tool's result
//	observation  think, finish   acknowledgements
//	observation  error     the action was not understood or could not be done
//	observation  lost      the attempt was closed before the action was answered
//	note         message   somebody said something
//	note         system    the system prompt and tools of an actor
//	note         reply     a model's reply
//	note         put       files entered the sandbox from outside
//	note         late      a result that came after its action had been answered
//	note         lagged    a watcher missed events
//	note         info      a remark of the harness (a retry, a phase, a warning)
//	note         network_refused   a place that the network policy kept the machine from
type (
	// Run is a command line for the sandbox's shell, or, when Args is set, a program without a
	// shell.
	Run struct {
		Command string   `json:"command,omitempty"`
		Args    []string `json:"args,omitempty"`
		Dir     string   `json:"dir,omitempty"`
		User    string   `json:"user,omitempty"`
	}

	// RunResult is what became of a command.
	RunResult struct {
		Code      int    `json:"code"`             // -1: a signal or a time-out ended it
		Signal    string `json:"signal,omitempty"` // SIGKILL …
		TimedOut  bool   `json:"timed_out,omitempty"`
		OOM       bool   `json:"oom,omitempty"`
		Output    string `json:"output,omitempty"` // both streams in order, cut in the middle to the limit
		Stderr    string `json:"stderr,omitempty"` // only where the streams were kept apart
		OutBytes  int64  `json:"out_bytes,omitempty"`
		ErrBytes  int64  `json:"err_bytes,omitempty"`
		Truncated bool   `json:"truncated,omitempty"`
		Full      string `json:"full,omitempty"` // path inside the sandbox of the whole output
		Blob      *Blob  `json:"blob,omitempty"` // the whole output, where it was kept outside
		Dir       string `json:"dir,omitempty"`  // working directory afterwards, where known
		WallMS    int64  `json:"wall_ms,omitempty"`
	}

	ToolCall struct {
		Name string          `json:"name"`
		Args json.RawMessage `json:"args,omitempty"`
	}
	ToolResult struct {
		Name  string          `json:"name,omitempty"`
		Parts []Part          `json:"parts,omitempty"`
		Error bool            `json:"error,omitempty"` // the tool says that it failed
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
	// Invalid is a call that names no tool of this session, or whose arguments do not parse.
	Invalid struct {
		Name string `json:"name"`
		Args string `json:"args,omitempty"` // as the model wrote them, perhaps not JSON
		Why  string `json:"why"`
	}

	Ack struct { // answers think and finish
		Of   string `json:"-"` // the kind of the action, which is the kind of the answer too
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
	// Reply is what a model answered. The provider's raw answer is kept with the call's record.
	Reply struct {
		ID        string      `json:"id"`    // unique in the session; Call.Reply points here
		Role      string      `json:"role"`  // which of the session's models: "main", "condenser" …
		Model     string      `json:"model"` // as the provider named itself
		Parts     []Part      `json:"parts,omitempty"`
		Reasoning string      `json:"reasoning,omitempty"`
		Calls     []ReplyCall `json:"calls,omitempty"`
		Stop      string      `json:"stop,omitempty"`
		Usage     Usage       `json:"usage"`
		// Opaque is what the vendor wants to see again in the next request (signed reasoning, say).
		Opaque json.RawMessage `json:"opaque,omitempty"`
	}
	// A ReplyCall is a tool call inside a reply. Args is text as the model wrote it, perhaps not
	// JSON.
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
	// NetworkRefused is one place that a machine asked for and its network policy does not allow,
	// told when a stage or its grading has ended, with how often it was asked for since it was told
	// last.
	NetworkRefused struct {
		Role  string `json:"role"`           // of the machine: agent, grader
		Host  string `json:"host"`           // as it was asked for; hostile
		Port  int    `json:"port,omitempty"` // 0: a name was to be resolved
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
		From int64 `json:"from"` // first event missed
		N    int64 `json:"n"`
	}
	Info struct {
		What string          `json:"what"`
		Text string          `json:"text,omitempty"`
		Data json.RawMessage `json:"data,omitempty"`
	}
)

// Usage counts tokens. Cached and CacheWrite are parts of In, Reasoning is a part of Out. Cost is
// nil when it is not known; then Counted is what limits and budgets count in its place, an upper
// estimate, nil where there is none either, and Unpriced says why: "usage" where the service does
// not say what the reply took, else the missing keys of the model's price.
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

// Silent reports whether the service does not say what a reply took, which is empty or not: there
// is no empty prompt, and no reply that holds something without output tokens.
func (u Usage) Silent(empty bool) bool { return u.In <= 0 || u.Out <= 0 && !empty }

// USD is what limits and budgets count; false: nobody knows.
func (u Usage) USD() (float64, bool) {
	switch {
	case u.Cost != nil:
		return *u.Cost, true
	case u.Counted != nil:
		return *u.Counted, true
	}
	return 0, false
}

func (Run) Kind() string            { return "run" }
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
