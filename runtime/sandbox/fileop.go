package sandbox

import "context"

// A Filer views and edits text files as the tool of an agent, and searches folders. Its texts are for the agent.
type Filer interface {
	// FileOp carries out one operation, with the rights of a user of the sandbox. What cannot be done
	// (a file that does not exist) is a result. Operations that change files wait for each other, so
	// that none of several changes at the same time is lost. When ctx ends, the operation is ended, and
	// a change is made whole or not at all.
	FileOp(ctx context.Context, op FileOp) (FileResult, error)
}

// Limits of file operations.
const (
	MaxEdited = 10 << 20  // bytes of a file that is viewed or changed
	MaxView   = 16_000    // characters of a view
	MaxRead   = 100_000   // characters of a text that is read
	MaxImage  = 3_750_000 // bytes of an image; models take 5 MB in base64

	MaxHits      = 1000 // of a search
	DefaultWidth = 500  // characters of a line that a search shows
)

// Unread is the FileOp.Known of a file that was not read.
const Unread = "unread"

// Operations.
const (
	FileView    = "view"        // the lines of a file, the names in a folder, two levels deep, or Data
	FileCreate  = "create"      // make a file with Text, and its folders; nothing is overwritten
	FileReplace = "str_replace" // put Text in the place of Old, which has to occur once
	FileInsert  = "insert"      // put Text after line Line, as lines of its own
	FileRestore = "restore"     // take a change back
	FileRead    = "read"        // the text of a file, without line numbers
	FileWrite   = "write"       // make a file with Text, or put it in the place of what is there, or of its Lines
	FileAppend  = "append"      // put Text at the end of a file, which is made if it does not exist
	FileGlob    = "glob"        // find the files below Path whose names match
	FileGrep    = "grep"        // find the lines that match, in the files below Path or in the file
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
	All  bool   `json:"all,omitempty"` // of FileReplace: Old may occur several times, and all are replaced
	// Known makes the change of a file that exists depend on its content: it is the Sum of the
	// FileRead, or of the change, by which the agent knows the file, or Unread.
	Known string `json:"known,omitempty"`
	// Lines are the first and the last line to view, read or write over, from 1; -1 is the file's last
	// one. Empty: all.
	Lines []int `json:"lines,omitempty"`
	// Change and Gone are of the FileResult that FileRestore takes back.
	Change
	Gone bool `json:"gone,omitempty"`

	Search *Search `json:"search,omitempty"` // of FileGlob and FileGrep
}

// Changes reports whether the operation changes a file.
func (op FileOp) Changes() bool {
	switch op.Op {
	case FileView, FileRead, FileGlob, FileGrep:
		return false
	}
	return true
}

// A Search says what is looked for below a folder, and where. The results are in the order of their
// paths.
//
// Files are left out as with ripgrep: hidden ones, those that .rgignore, .ignore and (in repositories
// of git) .gitignore name, and binary ones. Links are not followed.
type Search struct {
	// Pattern is a glob, or for FileGrep a regular expression of package regexp that is matched with
	// each line. In globs, ** is any number of folders and {a,b} one of several texts; a glob without
	// a slash is matched with the last element of a path.
	Pattern    string `json:"pattern"`
	Files      string `json:"files,omitempty"` // of FileGrep: a glob of the files that are searched; "": all
	Literal    bool   `json:"literal,omitempty"`
	IgnoreCase bool   `json:"ignore_case,omitempty"`
	Dirs       bool   `json:"dirs,omitempty"`  // of FileGlob: folders are found, too
	Max        int    `json:"max,omitempty"`   // hits; 0, or more than MaxHits: MaxHits
	Width      int    `json:"width,omitempty"` // characters of a line that are shown; 0: DefaultWidth
	// DeerFlow leaves files out as DeerFlow does, instead: by a list of names, such as node_modules;
	// for FileGrep those over 1,000,000 bytes. A glob with a slash may match the end of a path.
	DeerFlow bool `json:"deerflow,omitempty"`
}

// A Hit is a file or a line that a search has found; hostile.
type Hit struct {
	Path string `json:"path"` // a folder's ends with a slash
	Line int    `json:"line,omitempty"`
	Text string `json:"text,omitempty"` // the line, of which the end may be cut
}

// A Change is what an operation has changed in a file: the bytes Before, which began at At, have
// become Now bytes. Sum is the SHA-256 of the whole file after the change, and after a FileRead.
type Change struct {
	At     int    `json:"at,omitempty"`
	Now    int    `json:"now,omitempty"`
	Before []byte `json:"before,omitempty"`
	Sum    string `json:"sum,omitempty"`
}

// A FileResult is the outcome of a FileOp.
type FileResult struct {
	Text  string `json:"text"`            // for the agent; hostile
	Error bool   `json:"error,omitempty"` // nothing was changed, and Text says why
	Change
	Gone bool   `json:"gone,omitempty"` // there was no file before the change
	Real string `json:"real,omitempty"` // of the file that was changed: its path without links

	// Data is the content of an image or a PDF that is viewed, and Type its media type. Hostile: it
	// need not be one.
	Data []byte `json:"data,omitempty"`
	Type string `json:"type,omitempty"`

	// Of FileRead: the characters and lines that there are, of which Text has the first MaxRead
	// characters.
	Chars     int `json:"chars,omitempty"`
	LineCount int `json:"line_count,omitempty"`

	Hits []Hit `json:"hits,omitempty"` // of a search
	More bool  `json:"more,omitempty"` // there are more hits; Text may say why
}
