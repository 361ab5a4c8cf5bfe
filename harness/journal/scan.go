package journal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/evalrun/evalrun/harness/record"
)

// A BadLine is an unparsable part of a file. In a scan it is yielded as an error, and the scan
// continues after it.
type BadLine struct {
	File string // relative to the journal's folder
	Off  int64  // offset in the uncompressed file
	Err  error
}

func (e *BadLine) Error() string {
	return fmt.Sprintf("journal: %s at byte %d: %v; `evalrun resume` sets damaged lines apart", e.File, e.Off, e.Err)
}
func (e *BadLine) Unwrap() error { return e.Err }

// A Missing is a gap in the sequence numbers that no recovery has accounted for. In a scan it is
// yielded as an error, and the scan continues after it.
type Missing struct {
	From, To int64
	File     string // file that holds the entry after the gap, relative to the journal's folder
}

func (e *Missing) Error() string {
	files := e.File
	if files != controlFile {
		files = controlFile + " nor in " + files
	} else {
		files += " nor in " + eventsDir + "/"
	}
	return fmt.Sprintf("journal: %s missing: neither in %s", numbers(e.From, e.To), files)
}

// Scan yields all entries of the journal in dir, in order. If another process is writing, the scan
// ends at some recent entry. An error that is a *BadLine or a *Missing is about one place, and the
// scan continues after it; any other error is the last value. Data that a recovery has set aside is
// skipped silently, because it was reported then. The caller may keep the entries.
func Scan(dir string) iter.Seq2[record.Entry, error] { return ScanFrom(dir, 1) }

// ScanFrom is like Scan but starts at the entry numbered from. It does not read segments that end
// before it.
func ScanFrom(dir string, from int64) iter.Seq2[record.Entry, error] {
	return func(yield func(record.Entry, error) bool) {
		known, err := readManifest(dir)
		if err != nil {
			yield(record.Entry{}, err)
			return
		}
		ev, ctl := eventsCursor(dir), controlCursor(dir)
		defer ev.close()
		defer ctl.close()
		if from > 1 {
			if ev.segment, err = segmentOf(dir, from); err != nil {
				yield(record.Entry{}, err)
				return
			}
		}
		m := merge{ev: ev, ctl: ctl, known: known, from: from, yield: yield}
		m.run()
	}
}

// segmentOf returns the last segment that begins at or before an entry, or 1 if there is none. A
// segment with an unparsable beginning counts as one that begins later.
func segmentOf(dir string, seq int64) (int, error) {
	segs, err := segments(dir)
	if err != nil {
		return 0, err
	}
	for _, s := range slices.Backward(segs) {
		c := &cursor{dir: dir, segment: s.n, names: names{}}
		e, err := c.next()
		c.close()
		if err == nil && c.segment == s.n && e.Seq <= seq {
			return s.n, nil
		}
	}
	return 1, nil
}

// Control yields the entries of control.jsonl alone, in the same way as Scan.
func Control(dir string) iter.Seq2[record.Entry, error] {
	return func(yield func(record.Entry, error) bool) {
		c := controlCursor(dir)
		defer c.close()
		for {
			e, err := c.next()
			if err == io.EOF {
				return
			}
			if !yield(e, err) || fatal(err) {
				return
			}
		}
	}
}

// Events yields the entries of the first most segments of events, or of all if most is 0, without
// reading control.jsonl.
func Events(dir string, most int) iter.Seq2[record.Entry, error] {
	return func(yield func(record.Entry, error) bool) {
		c := eventsCursor(dir)
		defer c.close()
		for {
			e, err := c.next()
			if err == io.EOF || most > 0 && c.segment > most || !yield(e, err) || fatal(err) {
				return
			}
		}
	}
}

// fatal reports whether a scan ends with err.
func fatal(err error) bool {
	return err != nil && !errors.As(err, new(*BadLine)) && !errors.As(err, new(*Missing))
}

type merge struct {
	ev, ctl *cursor
	known   []Damage
	from    int64 // entries before this number are skipped
	yield   func(record.Entry, error) bool
}

func (m *merge) run() {
	last, twice := m.from-1, false
	for {
		if !m.peek(m.ev) || !m.peek(m.ctl) {
			return
		}
		c := m.first()
		if c != nil && c.head.Seq > last+1 && !(m.ev.has && m.ctl.has) {
			// An entry in between may have been written after the other file was read.
			if !m.peek(m.ev) || !m.peek(m.ctl) {
				return
			}
			c = m.first()
		}
		if c == nil {
			return
		}
		if from, to, gap := missing(last+1, c.head.Seq-1, m.known); gap {
			// Control entries are written after events (see commit), so events after the last
			// control entry belong to a commit that is in progress or was interrupted.
			if c == m.ev && !m.ctl.has {
				return
			}
			if !m.yield(record.Entry{}, &Missing{from, to, c.headFile}) {
				return
			}
		}
		if c.head.Seq > last {
			last = c.head.Seq
			twice = false
			if !m.yield(c.head, nil) {
				return
			}
		} else if !twice { // the first one counts; of several such entries in a row, one is reported
			twice = true
			if !m.yield(record.Entry{}, &BadLine{File: c.headFile, Off: c.headOff, Err: errOrder}) {
				return
			}
		}
		c.has = false
	}
}

// peek reads a cursor's head, if anything follows. It returns false if the scan must end.
func (m *merge) peek(c *cursor) bool {
	for !c.has {
		e, err := c.next()
		switch {
		case err == io.EOF:
			return true
		case err == nil:
			c.head, c.has = e, e.Seq >= m.from
			c.headFile, c.headOff = c.name, c.off
		case !m.yield(record.Entry{}, err) || fatal(err):
			return false
		}
	}
	return true
}

func (m *merge) first() *cursor {
	switch {
	case !m.ev.has && !m.ctl.has:
		return nil
	case !m.ctl.has || m.ev.has && m.ev.head.Seq < m.ctl.head.Seq:
		return m.ev
	}
	return m.ctl
}

// A cursor reads one stream: control.jsonl, or the segments of events one after the other.
type cursor struct {
	dir     string
	segment int // 0 means control.jsonl
	last    bool
	name    string
	in      *lines
	closers []io.Closer
	names   names
	head    record.Entry
	has     bool // head is valid
	raw     raw
	only    []byte // if set, lines without it are skipped
	until   int64  // with only: a line above this number ends the stream

	seq, off int64 // of the last entry
	old      bool  // inside a run of entries whose numbers do not ascend

	headFile string
	headOff  int64
}

func controlCursor(dir string) *cursor { return &cursor{dir: dir, names: names{}} }
func eventsCursor(dir string) *cursor  { return &cursor{dir: dir, segment: 1, names: names{}} }

// next returns the next entry, or io.EOF if there is none at present.
func (c *cursor) next() (record.Entry, error) {
	for {
		if c.in == nil {
			if err := c.open(); err != nil {
				return record.Entry{}, err
			}
		}
		line, off, err := c.in.next()
		if err == io.EOF {
			if c.segment == 0 {
				return record.Entry{}, io.EOF
			}
			// a compressed segment has complete lines, at least one
			if filepath.Ext(c.name) == packed && (off == 0 || c.in.rest() > 0) {
				return record.Entry{}, c.damaged(off, io.ErrUnexpectedEOF)
			}
			// If there is a later segment, this one is complete: read what was written since.
			if !c.last {
				n, err := nextSegment(c.dir, c.segment)
				if err != nil {
					return record.Entry{}, err
				}
				if n == 0 {
					return record.Entry{}, io.EOF
				}
				c.last = true
				continue
			}
			torn := c.in.rest()
			bad := &BadLine{File: c.name, Off: off, Err: io.ErrUnexpectedEOF}
			n, err := nextSegment(c.dir, c.segment)
			if err != nil {
				return record.Entry{}, err
			}
			c.close()
			c.segment, c.last = n, false
			if torn > 0 {
				return record.Entry{}, bad
			}
			continue
		}
		if err != nil && filepath.Ext(c.name) == packed {
			// A damaged archive ends here; later segments can still be read.
			return record.Entry{}, c.damaged(off, err)
		}
		if err != nil {
			return record.Entry{}, fmt.Errorf("journal: reading %s: %w", c.name, err)
		}
		r := &c.raw
		if c.only != nil && !bytes.Contains(line, c.only) {
			if seq, ok := lineSeq(line); ok && seq > c.until {
				return record.Entry{}, io.EOF
			}
			continue
		}
		if err := r.parse(line); err != nil {
			return record.Entry{}, &BadLine{File: c.name, Off: off, Err: err}
		}
		if err := newer(r.v); err != nil {
			return record.Entry{}, err
		}
		if r.seq <= c.seq {
			if c.old {
				continue
			}
			c.old = true
			return record.Entry{}, &BadLine{File: c.name, Off: off, Err: errOrder}
		}
		c.seq, c.off, c.old = r.seq, off, false
		return r.toEntry(c.names), nil
	}
}

// lineSeq parses only a line's number.
func lineSeq(line []byte) (int64, bool) {
	s, ok := bytes.CutPrefix(line, []byte(`{"seq":`))
	if !ok {
		return 0, false
	}
	seq, _, ok := cutInt(s)
	return seq, ok
}

// damaged skips the unreadable rest of a compressed segment.
func (c *cursor) damaged(off int64, why error) error {
	bad := &BadLine{File: c.name, Off: off, Err: why}
	n, err := nextSegment(c.dir, c.segment)
	if err != nil {
		return err
	}
	c.close()
	if n == 0 {
		n = c.segment + 1
	}
	c.segment, c.last = n, false
	return bad
}

// open opens the current file. It returns io.EOF if the file does not exist yet.
func (c *cursor) open() error {
	c.name = controlFile
	if c.segment > 0 {
		first, err := nextSegment(c.dir, c.segment-1)
		if err != nil {
			return err
		}
		if first == 0 {
			return io.EOF
		}
		c.segment = first
		c.name = segmentFile(c.segment)
	}
	f, err := os.Open(filepath.Join(c.dir, c.name))
	if errors.Is(err, fs.ErrNotExist) && c.segment > 0 {
		c.name += packed
		f, err = os.Open(filepath.Join(c.dir, c.name))
	}
	if errors.Is(err, fs.ErrNotExist) {
		return io.EOF
	}
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	c.closers = append(c.closers, f)
	var r io.Reader = f
	if filepath.Ext(c.name) == packed {
		z, err := zstd.NewReader(f, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true))
		if err != nil {
			return c.damaged(0, err)
		}
		c.closers = append(c.closers, z.IOReadCloser())
		r = z
	}
	c.in = newLines(r, 0)
	return nil
}

func (c *cursor) close() {
	for i := len(c.closers) - 1; i >= 0; i-- {
		c.closers[i].Close()
	}
	c.closers, c.in = nil, nil
}

// missing returns the part of from…to that no known damage accounts for.
func missing(from, to int64, known []Damage) (int64, int64, bool) {
	for again := true; again && from <= to; {
		again = false
		for _, d := range known {
			if d.From <= from && from <= d.To {
				from, again = d.To+1, true
			}
			if from <= to && d.From <= to && to <= d.To {
				to, again = d.From-1, true
			}
		}
	}
	return from, to, from <= to
}

// A lineReader reads single lines at known offsets.
type lineReader struct {
	buf  []byte
	off  int64 // offset of buf in the file
	file io.ReaderAt
}

// at returns the line that begins at off. It is valid until the next call.
func (l *lineReader) at(f io.ReaderAt, off int64) ([]byte, error) {
	if l.file == f && off >= l.off && off < l.off+int64(len(l.buf)) {
		rest := l.buf[off-l.off:]
		if i := bytes.IndexByte(rest, '\n'); i >= 0 {
			return rest[:i], nil
		}
	}
	l.file, l.off = f, off
	for size := 16 << 10; ; size *= 4 {
		if cap(l.buf) < size {
			l.buf = make([]byte, size)
		}
		n, err := f.ReadAt(l.buf[:size], off)
		l.buf = l.buf[:n]
		if i := bytes.IndexByte(l.buf, '\n'); i >= 0 {
			return l.buf[:i], nil
		}
		if err == io.EOF || size > 2*maxLine {
			return nil, io.ErrUnexpectedEOF
		}
		if err != nil {
			return nil, err
		}
	}
}

// A Damage is a part of the journal that was lost or set aside, as recorded in
// quarantine/manifest.jsonl.
type Damage struct {
	Time  time.Time `json:"time"`
	File  string    `json:"file"`            // where it was; "" if entries are missing without a trace
	Off   int64     `json:"off"`             // offset in the file at that time
	Bytes int64     `json:"bytes"`           // number of bytes moved
	Saved string    `json:"saved,omitempty"` // name in quarantine/
	From  int64     `json:"from"`            // sequence numbers missing since then
	To    int64     `json:"to"`
	// Touched lists the attempts that lost entries, as far as known.
	Touched []Touched `json:"touched,omitempty"`
}

// A Touched is an attempt that lost a part of its record.
type Touched struct {
	Trial   string `json:"trial"`
	Attempt int    `json:"attempt"`
}

// numbers describes a range of entries.
func numbers(from, to int64) string {
	switch {
	case from == to:
		return fmt.Sprintf("entry %d", from)
	case from > to:
		return "no entry"
	}
	return fmt.Sprintf("entries %d to %d", from, to)
}

// touchedText describes the attempts. It returns "" if none are known: control.jsonl, which would
// tell, may be what is lost.
func touchedText(ts []Touched) string {
	switch len(ts) {
	case 0:
		return ""
	case 1:
		return "; 1 attempt is to be played again"
	}
	return fmt.Sprintf("; %d attempts are to be played again", len(ts))
}

func (d Damage) String() string {
	what := numbers(d.From, d.To)
	if d.Saved == "" {
		if d.File != "" {
			what += " of " + d.File
		}
		return fmt.Sprintf("journal: %s missing%s", what, touchedText(d.Touched))
	}
	return fmt.Sprintf("journal: %d bytes of %s at byte %d were damaged (%s lost) and are now in quarantine/%s%s",
		d.Bytes, d.File, d.Off, what, d.Saved, touchedText(d.Touched))
}
