package execproto

// Kinds that observe a machine's file system without any program of the machine itself. They open
// streams like those of messages.go.
const (
	KindSnapshot = 0x20 + iota // Watches → data: Strings, the folders that "$PATH" stood for; then Result
	KindChanges                // String, the set → data, Changes in each frame; then Result, body: Bool cut
	// String owner, Strings of folders → Result, body: Strings, one remark per folder ("" if it was
	// a plain folder)
	KindClear
	KindRemove // Strings of files → Result
	// String folder → Result, body: Bool, ENTRYPOINT runs; "" ends the watch → Result, body: a
	// DirEvents
	KindDirEvents
	KindLinks // String folder, Strings of folders → Result, body: Strings
)

// A Watch names what is recorded: a path, or all paths that match a pattern (*, ?, [a-z]). "$PATH"
// stands for the folders that are searched for commands.
type Watch struct {
	Path  string
	Depth int // how many levels of folders are entered: 0 none, 1 the path's entries, -1 all
	// Python says that the path belongs to Python itself. Of the third-party packages in it
	// (site-packages, dist-packages) only those in Packages are then entered. The others are
	// recorded by name only, and so are the parts of Python used only for its own tests and tools.
	// Without Python everything is entered and Packages is ignored.
	Python   bool
	Packages []string
}

// EncodeWatches encodes the body of a KindSnapshot: what is recorded under the name set, replacing
// the earlier record or, with add, in addition to it.
func EncodeWatches(set string, add bool, ws []Watch) []byte {
	var e Enc
	e.String(set)
	e.Bool(add)
	e.Uint(uint64(len(ws)))
	for _, w := range ws {
		e.String(w.Path)
		e.Int(int64(w.Depth))
		e.Bool(w.Python)
		e.Strings(w.Packages)
	}
	return e
}

// DecodeWatches is the inverse of EncodeWatches.
func DecodeWatches(b []byte) (set string, add bool, ws []Watch, err error) {
	d := NewDec(b)
	set, add = d.String(), d.Bool()
	n := d.Uint()
	if n > uint64(len(b)) {
		return "", false, nil, ErrMalformed
	}
	for range n {
		ws = append(ws, Watch{d.String(), int(d.Int()), d.Bool(), d.Strings()})
	}
	return set, add, ws, d.Err()
}

// A Change is one difference between the record and the current state.
type Change struct {
	Path  string
	What  byte // Added, Shadows, Altered or Gone
	Mode  uint32
	UID   uint32
	Links uint32
	Size  int64
}

// Values of Change.What.
const (
	Added   = 'a'
	Shadows = 's' // added to a folder of $PATH while another folder of it had a program of this name
	Altered = 'c'
	Gone    = 'g'
)

func (c *Change) Encode(e *Enc) {
	e.String(c.Path)
	e.Uint(uint64(c.What))
	e.Uint(uint64(c.Mode))
	e.Uint(uint64(c.UID))
	e.Uint(uint64(c.Links))
	e.Int(c.Size)
}

// Change decodes a Change.
func (d *Dec) Change() Change {
	return Change{d.String(), byte(d.Uint()), uint32(d.Uint()), uint32(d.Uint()), uint32(d.Uint()), d.Int()}
}

// A DirEvents is what happened to a folder while it was watched. The lists hold names of files in
// it, in order, at most 100 each.
type DirEvents struct {
	Written  []string // closed by their writer, or moved here
	Again    []string // changed, created or moved here again after that
	Linked   []string // a link to a file elsewhere, or not a regular file: nobody wrote it here
	Replaced bool     // the folder has been replaced or removed
	Cut      bool     // there were more events than could be kept
}

func (v *DirEvents) Encode(e *Enc) {
	e.Strings(v.Written)
	e.Strings(v.Again)
	e.Strings(v.Linked)
	e.Bool(v.Replaced)
	e.Bool(v.Cut)
}

// DirEvents decodes a DirEvents.
func (d *Dec) DirEvents() DirEvents {
	return DirEvents{d.Strings(), d.Strings(), d.Strings(), d.Bool(), d.Bool()}
}

// More reports whether there is more to decode.
func (d *Dec) More() bool { return !d.bad && len(d.b) > 0 }
