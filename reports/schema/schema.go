// Package schema converts a journal to rows: plain structs, one type per table, which
// reports/parquetlog writes as Parquet and reports/export as JSON lines or CSV. The struct tags
// define the column names; docs/schema.md describes the columns.
//
// The structs are flat although trials and attempts have many fields in common, because parquet-go
// reads a null in an embedded struct as a zero.
//
// Columns that may be null are pointers. A non-pointer field tagged optional is not safe in
// parquet-go 0.32: if few of 64 consecutive rows are set, it writes the zero value instead of the
// nulls after them (column_buffer_write.go, writeRowsFuncOfOptional).
//
// Start with [Builder]. Values that a journal does not contain are null.
package schema

import (
	"strings"
	"time"
	"unicode/utf8"
)

// Schema is the version of the tables, stored in the metadata of every file. It is incremented when
// a column is renamed, removed, or changes its meaning; a new column does not change it.
//
//	1: the first
//	2: axes → arm_axes (pandas has an attribute of that name),
//	   end → outcome (a reserved word in SQL)
const Schema = 2

// MaxText limits the length of one text. A longer text is truncated at a character boundary, with a
// note at its end.
const MaxText = 1 << 20

// A Trial is the current row of a decided trial; there is exactly one per trial.
type Trial struct {
	Run       string            `parquet:"run_id,dict"`
	Trial     string            `parquet:"trial_id"`
	Arm       string            `parquet:"arm,dict"`
	ArmID     string            `parquet:"arm_id,dict"`
	Agent     string            `parquet:"agent,dict"`
	Model     *string           `parquet:"model,dict,optional"`
	Prompt    *string           `parquet:"prompt,dict,optional"`
	Axes      map[string]string `parquet:"arm_axes" parquet-key:",dict" parquet-value:",dict"`
	Benchmark string            `parquet:"benchmark,dict"`
	Task      string            `parquet:"task_id,dict"`
	Digest    string            `parquet:"task_digest,dict"`
	Cluster   *string           `parquet:"cluster,dict,optional"`
	Repeat    int32             `parquet:"repeat"`
	Attempts  int32             `parquet:"attempts"`
	Seed      uint64            `parquet:"seed"`
	Driver    *string           `parquet:"driver,dict,optional"`

	// Values of the attempt that decided the trial.
	Status        *string    `parquet:"status,dict,optional"`
	Outcome       *string    `parquet:"outcome,dict,optional"`
	LimitHit      *string    `parquet:"limit_hit,dict,optional"`
	Reward        *float64   `parquet:"reward,optional"`
	Flags         []string   `parquet:"flags,list" parquet-element:",dict"`
	Goal          *string    `parquet:"goal,optional"`
	GoalBlob      *string    `parquet:"goal_blob,optional"`
	Answer        *string    `parquet:"answer,optional"`
	ErrorPhase    *string    `parquet:"error_phase,dict,optional"`
	ErrorClass    *string    `parquet:"error_class,dict,optional"`
	Error         *string    `parquet:"error,optional"`
	StartedAt     time.Time  `parquet:"started_at,timestamp(microsecond)"`
	EndedAt       *time.Time `parquet:"ended_at,optional,timestamp(microsecond)"`
	WallMS        *int64     `parquet:"wall_ms,optional"`
	ImageMS       *int64     `parquet:"image_ms,optional"`
	QueueMS       *int64     `parquet:"queue_ms,optional"`
	StartMS       *int64     `parquet:"start_ms,optional"`
	AheadMS       *int64     `parquet:"ahead_ms,optional"`
	AgentMS       *int64     `parquet:"agent_ms,optional"`
	WorkingMS     *int64     `parquet:"working_ms,optional"`
	ModelMS       *int64     `parquet:"model_ms,optional"`
	BackoffMS     *int64     `parquet:"backoff_ms,optional"`
	ToolMS        *int64     `parquet:"tool_ms,optional"`
	GradeMS       *int64     `parquet:"grade_ms,optional"`
	CloseMS       *int64     `parquet:"close_ms,optional"`
	Stages        *int32     `parquet:"stages,optional"`
	Steps         *int64     `parquet:"steps,optional"`
	Turns         *int64     `parquet:"turns,optional"`
	BadCalls      *int64     `parquet:"bad_calls,optional"`
	Calls         *int64     `parquet:"calls,optional"`
	TokensIn      *int64     `parquet:"tokens_in,optional"`
	TokensOut     *int64     `parquet:"tokens_out,optional"`
	TokensCached  *int64     `parquet:"tokens_cached,optional"`
	TokensWrite   *int64     `parquet:"tokens_cache_write,optional"`
	TokensReason  *int64     `parquet:"tokens_reasoning,optional"`
	Cost          *float64   `parquet:"cost_usd,optional"`
	OtherCalls    *int64     `parquet:"other_calls,optional"`
	OtherIn       *int64     `parquet:"other_tokens_in,optional"`
	OtherOut      *int64     `parquet:"other_tokens_out,optional"`
	OtherCost     *float64   `parquet:"other_cost_usd,optional"`
	LeftProcesses *int32     `parquet:"left_processes,optional"`
	MaxMemory     *int64     `parquet:"max_memory,optional"`
	OOMs          *int64     `parquet:"ooms,optional"`
	CPUMS         *int64     `parquet:"cpu_ms,optional"`
	ThrottledMS   *int64     `parquet:"throttled_ms,optional"`
	Disk          *int64     `parquet:"disk,optional"`
	Abandoned     *bool      `parquet:"abandoned,optional"`
	Image         *string    `parquet:"image,dict,optional"`
	ImageDigest   *string    `parquet:"image_digest,dict,optional"`
	Network       *string    `parquet:"network,dict,optional"`
	Refused       *int64     `parquet:"refused,optional"`

	// Of the second opinion; null where the grade needs none.
	Confirmed    *bool    `parquet:"confirmed,optional"`
	Confirmation *string  `parquet:"confirmation,dict,optional"`
	ConfirmedWhy *string  `parquet:"confirmation_why,optional"`
	Slipped      []string `parquet:"slipped,list"`

	AmendedAt  *time.Time `parquet:"amended_at,optional,timestamp(microsecond)"`
	AmendedWhy *string    `parquet:"amended_why,optional"`
	Seq        int64      `parquet:"seq"`
}

// An Attempt is the row of one attempt. If it never got a verdict (its process was killed), its
// status is null.
type Attempt struct {
	Run       string  `parquet:"run_id,dict"`
	Trial     string  `parquet:"trial_id"`
	Attempt   int32   `parquet:"attempt"`
	Final     bool    `parquet:"final"`
	Why       *string `parquet:"why,dict,optional"`
	Regrade   bool    `parquet:"regrade"`
	Arm       string  `parquet:"arm,dict"`
	Benchmark string  `parquet:"benchmark,dict"`
	Task      string  `parquet:"task_id,dict"`
	Repeat    int32   `parquet:"repeat"`
	Driver    *string `parquet:"driver,dict,optional"`
	QueuedMS  int64   `parquet:"queued_ms"`

	// Null without a verdict, except StartedAt.
	Status        *string    `parquet:"status,dict,optional"`
	Outcome       *string    `parquet:"outcome,dict,optional"`
	LimitHit      *string    `parquet:"limit_hit,dict,optional"`
	Reward        *float64   `parquet:"reward,optional"`
	Flags         []string   `parquet:"flags,list" parquet-element:",dict"`
	Goal          *string    `parquet:"goal,optional"`
	GoalBlob      *string    `parquet:"goal_blob,optional"`
	Answer        *string    `parquet:"answer,optional"`
	ErrorPhase    *string    `parquet:"error_phase,dict,optional"`
	ErrorClass    *string    `parquet:"error_class,dict,optional"`
	Error         *string    `parquet:"error,optional"`
	StartedAt     time.Time  `parquet:"started_at,timestamp(microsecond)"`
	EndedAt       *time.Time `parquet:"ended_at,optional,timestamp(microsecond)"`
	WallMS        *int64     `parquet:"wall_ms,optional"`
	ImageMS       *int64     `parquet:"image_ms,optional"`
	QueueMS       *int64     `parquet:"queue_ms,optional"`
	StartMS       *int64     `parquet:"start_ms,optional"`
	AheadMS       *int64     `parquet:"ahead_ms,optional"`
	AgentMS       *int64     `parquet:"agent_ms,optional"`
	WorkingMS     *int64     `parquet:"working_ms,optional"`
	ModelMS       *int64     `parquet:"model_ms,optional"`
	BackoffMS     *int64     `parquet:"backoff_ms,optional"`
	ToolMS        *int64     `parquet:"tool_ms,optional"`
	GradeMS       *int64     `parquet:"grade_ms,optional"`
	CloseMS       *int64     `parquet:"close_ms,optional"`
	Stages        *int32     `parquet:"stages,optional"`
	Steps         *int64     `parquet:"steps,optional"`
	Turns         *int64     `parquet:"turns,optional"`
	BadCalls      *int64     `parquet:"bad_calls,optional"`
	Calls         *int64     `parquet:"calls,optional"`
	TokensIn      *int64     `parquet:"tokens_in,optional"`
	TokensOut     *int64     `parquet:"tokens_out,optional"`
	TokensCached  *int64     `parquet:"tokens_cached,optional"`
	TokensWrite   *int64     `parquet:"tokens_cache_write,optional"`
	TokensReason  *int64     `parquet:"tokens_reasoning,optional"`
	Cost          *float64   `parquet:"cost_usd,optional"`
	OtherCalls    *int64     `parquet:"other_calls,optional"`
	OtherIn       *int64     `parquet:"other_tokens_in,optional"`
	OtherOut      *int64     `parquet:"other_tokens_out,optional"`
	OtherCost     *float64   `parquet:"other_cost_usd,optional"`
	LeftProcesses *int32     `parquet:"left_processes,optional"`
	MaxMemory     *int64     `parquet:"max_memory,optional"`
	OOMs          *int64     `parquet:"ooms,optional"`
	CPUMS         *int64     `parquet:"cpu_ms,optional"`
	ThrottledMS   *int64     `parquet:"throttled_ms,optional"`
	Disk          *int64     `parquet:"disk,optional"`
	Abandoned     *bool      `parquet:"abandoned,optional"`
	Image         *string    `parquet:"image,dict,optional"`
	ImageDigest   *string    `parquet:"image_digest,dict,optional"`
	Network       *string    `parquet:"network,dict,optional"`
	Refused       *int64     `parquet:"refused,optional"`

	Seq int64 `parquet:"seq"`
}

// An Event is an action, an observation or a note of a session. Its kind determines which columns
// from Command on are set.
type Event struct {
	Run       string      `parquet:"run_id,dict"`
	Trial     string      `parquet:"trial_id,dict"`
	Attempt   int32       `parquet:"attempt"`
	ID        int64       `parquet:"event_id"`
	Time      time.Time   `parquet:"time,timestamp(microsecond)"`
	MonoUS    int64       `parquet:"mono_us"`
	Source    string      `parquet:"source,dict"`
	Actor     string      `parquet:"actor,dict"`
	Class     string      `parquet:"class,dict"`
	Kind      string      `parquet:"kind,dict"`
	Cause     *int64      `parquet:"cause,optional"`
	Reply     *string     `parquet:"reply_id,optional"`
	CallID    *string     `parquet:"call_id,optional"`
	CallIndex *int32      `parquet:"call_index,optional"`
	CallOf    *int32      `parquet:"call_of,optional"`
	Name      *string     `parquet:"name,dict,optional"`
	TimeoutMS *int64      `parquet:"timeout_ms,optional"`
	Command   *string     `parquet:"command,optional"`
	Args      []string    `parquet:"args,list"`
	Dir       *string     `parquet:"dir,dict,optional"`
	User      *string     `parquet:"user,dict,optional"`
	Path      *string     `parquet:"path,dict,optional"`
	Old       *string     `parquet:"old_text,optional"`
	Lines     []int32     `parquet:"lines,list"`
	ExitCode  *int32      `parquet:"exit_code,optional"`
	Signal    *string     `parquet:"signal,dict,optional"`
	TimedOut  *bool       `parquet:"timed_out,optional"`
	OOM       *bool       `parquet:"oom,optional"`
	Output    *string     `parquet:"output,optional"`
	Stderr    *string     `parquet:"stderr,optional"`
	OutBytes  *int64      `parquet:"out_bytes,optional"`
	ErrBytes  *int64      `parquet:"err_bytes,optional"`
	Truncated *bool       `parquet:"truncated,optional"`
	WallMS    *int64      `parquet:"wall_ms,optional"`
	Text      *string     `parquet:"text,optional"`
	Arguments *string     `parquet:"arguments,optional"`
	Failed    *bool       `parquet:"failed,optional"`
	Code      *string     `parquet:"code,dict,optional"`
	Role      *string     `parquet:"role,dict,optional"`
	Host      *string     `parquet:"host,dict,optional"`
	Port      *int32      `parquet:"port,optional"`
	Count     *int64      `parquet:"count,optional"`
	Model     *string     `parquet:"model,dict,optional"`
	Reasoning *string     `parquet:"reasoning,optional"`
	Calls     []EventCall `parquet:"calls,list"`
	Stop      *string     `parquet:"stop,dict,optional"`
	TokensIn  *int64      `parquet:"tokens_in,optional"`
	TokensOut *int64      `parquet:"tokens_out,optional"`
	Cost      *float64    `parquet:"cost_usd,optional"`
	Reward    *float64    `parquet:"reward,optional"`
	Sum       *float64    `parquet:"cumulative_reward,optional"`
	RawReward *float64    `parquet:"raw_reward,optional"`
	URL       *string     `parquet:"url,dict,optional"`
	Title     *string     `parquet:"title,dict,optional"`
	Pages     []Page      `parquet:"pages,list"`
	Focused   *string     `parquet:"focused,dict,optional"`
	Error     *string     `parquet:"error,optional"`
	Blobs     []Blob      `parquet:"blobs,list"`
	Data      *string     `parquet:"data,optional"`
	Seq       int64       `parquet:"seq"`
}

// An EventCall is a tool call in a model's reply.
type EventCall struct {
	ID   string `parquet:"id"`
	Name string `parquet:"name,dict"`
	Args string `parquet:"args"`
}

// A Page is an open page of a browser.
type Page struct {
	URL   string `parquet:"url,dict"`
	Title string `parquet:"title,dict"`
}

// A Blob refers to content in the run directory's blobs. Role is the blob's role in its event: one
// of the Role… constants.
type Blob struct {
	SHA256 string `parquet:"sha256"`
	Type   string `parquet:"type,dict"`
	Size   int64  `parquet:"size"`
	Role   string `parquet:"role,dict"`
}

// Roles of blobs.
const (
	RoleBody       = "body"       // the event's own body, too large for the journal
	RoleOutput     = "output"     // complete output of a command
	RolePart       = "part"       // part of a message, a reply or a tool result, in order
	RoleScreenshot = "screenshot" // of the page
	RoleMarks      = "marks"      // the screenshot with element marks drawn over it
	RoleAX         = "ax"         // the accessibility tree
	RoleDOM        = "dom"        // the DOM
	RoleProperties = "properties" // properties of each marked element
	RoleDownload   = "download"   // a downloaded file, in the order of the downloads in data
)

// A ModelCall is one try of one model call.
type ModelCall struct {
	Run          string    `parquet:"run_id,dict"`
	Trial        string    `parquet:"trial_id,dict"`
	Attempt      int32     `parquet:"attempt"`
	Actor        string    `parquet:"actor,dict"`
	Role         string    `parquet:"role,dict"`
	N            int32     `parquet:"call_n"`
	Try          int32     `parquet:"call_try"`
	Model        string    `parquet:"model,dict"`
	Reply        *string   `parquet:"reply_id,optional"`
	TakenFrom    *string   `parquet:"taken_from,dict,optional"`
	Stop         *string   `parquet:"stop,dict,optional"`
	TokensIn     *int64    `parquet:"tokens_in,optional"`
	TokensOut    *int64    `parquet:"tokens_out,optional"`
	TokensCached *int64    `parquet:"tokens_cached,optional"`
	TokensWrite  *int64    `parquet:"tokens_cache_write,optional"`
	TokensReason *int64    `parquet:"tokens_reasoning,optional"`
	Cost         *float64  `parquet:"cost_usd,optional"`
	StartedAt    time.Time `parquet:"started_at,timestamp(microsecond)"`
	LatencyUS    int64     `parquet:"latency_us"`
	WaitedUS     int64     `parquet:"waited_us"`
	HTTP         *int32    `parquet:"http_status,optional"`
	ErrorClass   *string   `parquet:"error_class,dict,optional"`
	Error        *string   `parquet:"error,optional"`
	ProviderID   *string   `parquet:"provider_id,optional"`
	Request      *string   `parquet:"request_sha256,optional"`
	Sent         *string   `parquet:"sent_sha256,optional"`
	RawReply     *string   `parquet:"raw_reply,optional"`
	RawBlob      *string   `parquet:"raw_reply_sha256,optional"`
	Seq          int64     `parquet:"seq"`
}

// Scopes of a score.
const (
	OfTrial = "trial" // of a whole attempt, from its verdict
	OfStage = "stage" // of one stage
	OfStep  = "step"  // the reward of one action
	OfAmend = "amend" // a later correction of the trial's score
)

// A Score is a grade.
type Score struct {
	Run     string    `parquet:"run_id,dict"`
	Trial   string    `parquet:"trial_id,dict"`
	Attempt *int32    `parquet:"attempt,optional"`
	Scope   string    `parquet:"scope,dict"`
	Stage   *int32    `parquet:"stage,optional"`
	Event   *int64    `parquet:"event_id,optional"`
	Name    string    `parquet:"name,dict"`
	Primary bool      `parquet:"is_primary"`
	Value   *float64  `parquet:"value,optional"`
	Text    *string   `parquet:"text,optional"`
	Why     *string   `parquet:"why,optional"`
	Time    time.Time `parquet:"time,timestamp(microsecond)"`
	Seq     int64     `parquet:"seq"`
}

// A Test is one named test of a grader.
type Test struct {
	Run     string  `parquet:"run_id,dict"`
	Trial   string  `parquet:"trial_id,dict"`
	Attempt int32   `parquet:"attempt"`
	Stage   int32   `parquet:"stage"`
	Name    string  `parquet:"name,dict"`
	Status  string  `parquet:"status,dict"`
	Message *string `parquet:"message,optional"`
	Seq     int64   `parquet:"seq"`
}

// Kinds of a [Change].
const (
	OfFolder     = "folder"        // changes in one folder
	OtherFolders = "other_folders" // the sum of those in all folders without a row
	OfPath       = "path"          // one path that the grader used
)

// A Change is what the agent changed in a folder, or a path that it changed and the grader used.
type Change struct {
	Run     string  `parquet:"run_id,dict"`
	Trial   string  `parquet:"trial_id,dict"`
	Attempt int32   `parquet:"attempt"`
	Stage   *int32  `parquet:"stage,optional"`
	Kind    string  `parquet:"kind,dict"`
	Path    *string `parquet:"path,dict,optional"`
	Work    *bool   `parquet:"is_work,optional"`
	Created *int64  `parquet:"n_created,optional"`
	Changed *int64  `parquet:"n_changed,optional"`
	Removed *int64  `parquet:"n_removed,optional"`
	Used    *string `parquet:"used,dict,optional"`
	Seq     int64   `parquet:"seq"`
}

// A Task is a task of the plan.
type Task struct {
	Run       string            `parquet:"run_id,dict"`
	Benchmark string            `parquet:"benchmark,dict"`
	Task      string            `parquet:"task_id"`
	Digest    string            `parquet:"task_digest"`
	Cluster   *string           `parquet:"cluster,dict,optional"`
	Tags      []string          `parquet:"tags,list" parquet-element:",dict"`
	Fields    map[string]string `parquet:"fields" parquet-key:",dict" parquet-value:",dict"`
	Bad       *string           `parquet:"bad,optional"`
}

// An Arm is an arm of the plan.
type Arm struct {
	Run        string            `parquet:"run_id,dict"`
	Arm        string            `parquet:"arm"`
	ArmID      string            `parquet:"arm_id"`
	Agent      string            `parquet:"agent,dict"`
	Model      *string           `parquet:"model,dict,optional"`
	Prompt     *string           `parquet:"prompt,dict,optional"`
	Axes       map[string]string `parquet:"arm_axes"`
	Definition *string           `parquet:"definition,optional"`
	Planned    int64             `parquet:"planned"`
}

// clean makes s valid for every reader: valid UTF-8 with at most MaxText bytes.
func clean(s string) string {
	s = cutAt(s, MaxText)
	if utf8.ValidString(s) {
		return s
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// cutAt truncates s to n bytes at a character boundary and appends a note.
func cutAt(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "… [cut]"
}

// optional returns nil for the empty string.
func optional(s string) *string {
	if s == "" {
		return nil
	}
	s = clean(s)
	return &s
}

func ptr[T any](x T) *T { return &x }
