package journal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
)

// ErrLost means that durable entries are missing or unparsable. The error is a *LossError.
var ErrLost = errors.New("a part of the run's records is lost")

// A LossError lists what is lost. Nothing was changed; [Repair] continues without it.
type LossError struct{ Losses []Loss }

func (e *LossError) Error() string {
	var b strings.Builder
	b.WriteString(ErrLost.Error() + ":")
	for _, l := range e.Losses {
		b.WriteString("\n  " + l.String())
	}
	return b.String()
}

func (e *LossError) Is(target error) bool { return target == ErrLost }

// A Loss is a file that has lost some of its content.
type Loss struct {
	File string // relative to the journal's folder
	Text string
}

// Path returns the file relative to the run's folder.
func (l Loss) Path() string { return path.Join("journal", filepath.ToSlash(l.File)) }

func (l Loss) String() string { return l.Path() + " " + l.Text }

// A Witness is what another file of the run's folder records about the journal.
type Witness struct {
	File   string // relative to the run's folder
	Seq    int64  // number of an entry that was durable; 0 if unknown
	Trials int    // at least this many trials had started
}

// Verify compares the journal in dir with its own mark and with what other files of the run record
// about it. run is the run's ID. Verify checks only the ends of files and their numbers, so it is
// cheap; readers of the files ([Scan]) report damage inside them. No process may be writing. The
// error is a read error; if nothing is missing, there are no losses.
func Verify(dir, run string, witnesses ...Witness) ([]Loss, error) {
	known, err := readManifest(dir)
	if err != nil {
		return nil, err
	}
	m := readMark(dir)
	losses, err := verifySegments(dir, m, known)
	if err != nil {
		return nil, err
	}
	if m != nil {
		if m.Run != "" && run != "" && m.Run != run {
			losses = append(losses, Loss{markFile,
				fmt.Sprintf("is of the run %s: this is the journal of another run", m.Run)})
		}
		if m.Control.Seq > 0 {
			why, err := m.Control.there(dir)
			if err != nil {
				return nil, err
			}
			if why != "" {
				losses = append(losses, Loss{controlFile, why + lostFrom(dir, m.Control.Seq)})
			}
		}
	}
	more, err := hear(dir, m, known, witnesses)
	return append(losses, more...), err
}

// verifySegments looks for missing segments and checks that the last one is as long as it was.
func verifySegments(dir string, m *mark, known []Damage) (losses []Loss, err error) {
	segs, err := segments(dir)
	if err != nil {
		return nil, err
	}
	missing := func(from, to int) {
		for n := from; n < to; n++ {
			if !accounted(known, segmentFile(n)) {
				losses = append(losses, Loss{segmentFile(n), "is missing"})
			}
		}
	}
	want := 1
	for _, s := range segs {
		missing(want, s.n)
		want = s.n + 1
	}
	finished, extents := segs, make([]extent, len(segs))
	if n := len(segs); n > 0 && !segs[n-1].packed { // the mark covers the last one
		finished = segs[:n-1]
	}
	for i, s := range segs {
		if extents[i], err = extentOf(dir, s); err != nil {
			return nil, err
		}
		if why := extents[i].why; why != "" && i < len(finished) {
			losses = append(losses, Loss{s.file(), why})
		}
	}
	lack, err := holes(dir, segs, extents, known)
	if err != nil {
		return nil, err
	}
	for _, h := range lack {
		losses = append(losses, Loss{h.file, "or the file after it lacks " + numbers(h.from, h.to)})
	}
	if m == nil {
		return losses, nil
	}
	missing(want, m.Events.Segment+1)
	for _, s := range segs {
		if s.n == m.Events.Segment && !s.packed {
			why, err := m.Events.there(dir)
			if err != nil {
				return nil, err
			}
			if why != "" {
				losses = append(losses, Loss{s.file(), why})
			}
		}
	}
	return losses, nil
}

// accounted reports whether an earlier repair listed a whole file as lost.
func accounted(known []Damage, file string) bool {
	for _, d := range known {
		if d.File == file && d.Bytes == 0 {
			return true
		}
	}
	return false
}

// lostFrom describes which entries a truncated control.jsonl has lost at its end.
func lostFrom(dir string, to int64) string {
	last, err := lastControl(dir)
	if err != nil || last >= to {
		return ""
	}
	return "; it ends at entry " + strconv.FormatInt(last, 10) + ", and had entry " + strconv.FormatInt(to, 10)
}

// hear compares the journal with what other files record about it.
func hear(dir string, m *mark, known []Damage, ws []Witness) (losses []Loss, err error) {
	var farthest Witness
	for _, w := range ws {
		if w.Seq > farthest.Seq {
			farthest = w
		}
	}
	last, err := lastControl(dir)
	if err != nil {
		return nil, err
	}
	if farthest.Seq > last {
		from, to, err := absent(dir, last+1, farthest.Seq, known)
		if err != nil {
			return nil, err
		}
		if from > 0 {
			losses = append(losses, Loss{controlFile,
				fmt.Sprintf("ends at entry %d, but %s knows of entry %d: of %s some are neither there nor in events/",
					last, farthest.File, farthest.Seq, numbers(from, to))})
		}
	}
	for _, w := range ws {
		if w.Trials == 0 || m != nil { // the mark knows better, and without a read of all of control.jsonl
			continue
		}
		st, err := ReadState(dir)
		if err != nil {
			return nil, err
		}
		if n := st.Len(); n < w.Trials {
			losses = append(losses, Loss{controlFile,
				fmt.Sprintf("has %d trials that have begun, but %s has %d that are decided", n, w.File, w.Trials)})
		}
	}
	return losses, nil
}

// absent returns the first and the last number in from…to that neither an event nor known damage
// accounts for, or 0.
func absent(dir string, from, to int64, known []Damage) (first, last int64, err error) {
	note := func(from, to int64) {
		if a, b, gap := missing(from, to, known); gap {
			if first == 0 {
				first = a
			}
			last = b
		}
	}
	c := eventsCursor(dir)
	defer c.close()
	if c.segment, err = segmentOf(dir, from); err != nil {
		return 0, 0, err
	}
	next := from
	for next <= to {
		e, err := c.next()
		if err == io.EOF {
			break
		}
		if fatal(err) {
			return 0, 0, err
		}
		if err != nil || e.Seq < next {
			continue
		}
		note(next, min(e.Seq-1, to))
		next = e.Seq + 1
	}
	note(next, to)
	return first, last, nil
}

// lastControl returns the number of the last entry of control.jsonl, or 0.
func lastControl(dir string) (int64, error) {
	f, err := os.Open(filepath.Join(dir, controlFile))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("journal: %w", err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return 0, fmt.Errorf("journal: %w", err)
	}
	// The last complete line is nearly always in the last 64 KiB; otherwise read the whole file.
	off := max(0, st.Size()-64<<10)
	last := int64(0)
	in := newLines(io.NewSectionReader(f, off, st.Size()-off), off)
	for {
		line, _, err := in.next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return 0, fmt.Errorf("journal: reading %s: %w", controlFile, err)
		}
		var r raw
		if r.parse(line) == nil {
			last = r.seq
		}
	}
	if last > 0 || off == 0 {
		return last, nil
	}
	s := &fileSurvey{name: controlFile}
	err = s.read(dir, func(*raw, int64) {})
	return s.last, err
}
