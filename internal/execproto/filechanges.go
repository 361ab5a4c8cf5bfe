package execproto

// Kinds that observe a machine's file system without any program of the machine itself. They open
// streams like those of messages.go.
const (
	KindSnapshot = 0x20 + iota // Watches → Result
	KindChanges                // → data, Changes in each frame; then Result, body: Bool cut
	// String owner, Strings of folders → Result, body: Strings, one remark per folder ("" if it was
	// a plain folder)
	KindClear
	KindRemove // Strings of files → Result
	// String folder → Result, body: Bool, ENTRYPOINT runs; "" ends the watch → Result, body: a
	// DirEvents
	KindDirEvents
)

// A Watch names what is recorded.
type Watch struct {
	Path  string
	Depth int // how many levels of folders are entered: 0 none, 1 the path's entries, -1 all
}

// EncodeWatches encodes the body of a KindSnapshot.
func EncodeWatches(ws []Watch) []byte {
	var e Enc
	e.Uint(uint64(len(ws)))
	for _, w := range ws {
		e.String(w.Path)
		e.Int(int64(w.Depth))
	}
	return e
}

// DecodeWatches is the inverse of EncodeWatches.
func DecodeWatches(b []byte) (ws []Watch, err error) {
	d := NewDec(b)
	n := d.Uint()
	if n > uint64(len(b)) {
		return nil, ErrMalformed
	}
	for range n {
		ws = append(ws, Watch{d.String(), int(d.Int())})
	}
	return ws, d.Err()
}

// A Change is one difference between the record and the current state.
type Change struct {
	Path  string
	What  byte // Added, Altered or Gone
	Mode  uint32
	UID   uint32
	Links uint32
	Size  int64
}

// Values of Change.What.
const (
	Added   = 'a'
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
