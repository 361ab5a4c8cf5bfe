package sandbox

import "context"

// A Filer views and edits text files as the tool of an agent. Its texts are for the agent.
type Filer interface {
	// FileOp carries out one operation, with the rights of a user of the sandbox. What cannot be done
	// (a file that does not exist) is a result. Operations do not wait for each other; of two that
	// change one file at the same time, one may be lost, but no file has parts of both. When ctx ends,
	// the operation is ended, and a change is made whole or not at all.
	FileOp(ctx context.Context, op FileOp) (FileResult, error)
}

// Limits of file operations.
const (
	MaxEdited = 10 << 20 // bytes of a file that is viewed or changed
	MaxView   = 16_000   // characters of a view
)

// Operations.
const (
	FileView    = "view"        // the lines of a file, or the names in a folder, two levels deep
	FileCreate  = "create"      // make a file with Text, and its folders; nothing is overwritten
	FileReplace = "str_replace" // put Text in the place of Old, which has to occur once
	FileInsert  = "insert"      // put Text after line Line, as lines of its own
	FileRestore = "restore"     // take a change back
)

// A FileOp is one operation on one file or folder.
type FileOp struct {
	Op   string `json:"op"`
	Path string `json:"path"`          // absolute
	User string `json:"-"`             // whose rights; "": the sandbox's user
	Dir  string `json:"dir,omitempty"` // where the agent is, to suggest an absolute path
	Text string `json:"text,omitempty"`
	Old  string `json:"old,omitempty"`
	Line int    `json:"line,omitempty"`
	// Lines are the first and the last line to view, from 1; -1 is the file's last one. Empty: all.
	Lines []int `json:"lines,omitempty"`
	// Before and Gone are of the FileResult that FileRestore takes back.
	Before []byte `json:"before,omitempty"`
	Gone   bool   `json:"gone,omitempty"`
}

// A FileResult is the outcome of a FileOp.
type FileResult struct {
	Text  string `json:"text"`            // for the agent; hostile
	Error bool   `json:"error,omitempty"` // nothing was changed, and Text says why
	// Before is the file's content before a change. Gone: there was no file.
	Before []byte `json:"before,omitempty"`
	Gone   bool   `json:"gone,omitempty"`
}
