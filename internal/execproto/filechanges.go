package execproto

// Kinds that look after a machine's file system, with no program of the machine's own. They open
// streams as those of messages.go do.
const (
	KindSnapshot = 0x20 + iota // Marks → data: Strings, the folders that "$PATH" stood for; then Result
	KindChanges                // String, the set → data, each frame some Changes; then Result, body: Bool cut
	// String owner, Strings of folders → Result, body: Strings, one remark for each folder ("": it
	// was a plain one)
	KindClear
	KindRemove // Strings of files → Result
	// String folder → Result, body: Bool, ENTRYPOINT runs; "": the end of it → Result, body: a
	// DirEvents
	KindDirEvents
	KindLinks // String folder, Strings of folders → Result, body: Strings
)

// A Watch names what is remembered: a path, or all that a pattern (*, ?, [a-z]) fits; "$PATH"
// stands for the folders in which commands are looked for.
type Watch struct {
	Path  string
	Depth int // folders are entered so deep: 0 not at all, 1 their entries; -1 all
	// Python says that the path is Python's own. Of the packages of others that it keeps
	// (site-packages, dist-packages) only Packages are entered then; the rest is looked at by name
	// alone, and so are the parts of Python that serve only its own tests and tools. Without Python
	// everything is entered, and Packages means nothing.
	Python   bool
	Packages []string
}

// EncodeWatches makes the body of a KindSnapshot: what is remembered under a name, in place of what
// was, or beside it.
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

// DecodeWatches is its opposite.
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

// A Change is one difference between what was marked and what is there.
type Change struct {
	Path  string
	What  byte // see below
	Mode  uint32
	UID   uint32
	Links uint32
	Size  int64
}

// What a Change can be.
const (
	Added   = 'a'
	Shadows = 's' // added to a folder of $PATH, of which another had a program of this name
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

// Change reads a Change.
func (d *Dec) Change() Change {
	return Change{d.String(), byte(d.Uint()), uint32(d.Uint()), uint32(d.Uint()), uint32(d.Uint()), d.Int()}
}

// A DirEvents is what became of a folder while it was watched. Names are of files in it, in order; of
// each list at most 100.
type DirEvents struct {
	Written  []string // finished by who had written them, or moved here
	Again    []string // changed, made or moved here once more after that
	Linked   []string // another name of a file elsewhere, or no plain file: nobody wrote it here
	Replaced bool     // another folder is there now, or none
	Cut      bool     // there was more than could be kept
}

func (v *DirEvents) Encode(e *Enc) {
	e.Strings(v.Written)
	e.Strings(v.Again)
	e.Strings(v.Linked)
	e.Bool(v.Replaced)
	e.Bool(v.Cut)
}

// DirEvents reads a DirEvents.
func (d *Dec) DirEvents() DirEvents {
	return DirEvents{d.Strings(), d.Strings(), d.Strings(), d.Bool(), d.Bool()}
}

// More reports whether something is left to read.
func (d *Dec) More() bool { return !d.bad && len(d.b) > 0 }
