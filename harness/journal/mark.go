package journal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"

	"github.com/evalrun/evalrun/internal/fsutil"
)

// The mark file records how far the journal is durable, so that a file that was cut, replaced or
// removed later is detected: the journal's other files do not record their own length. The mark is
// written in place after each commit, without an fsync, so after a power failure it may be behind
// the journal. It is never ahead of it. A missing or unparsable mark is ignored.

const markFile = "mark"

// markSize is the fixed size of the file, so that it can be written in place.
const markSize = 512

type mark struct {
	V       int    `json:"v"`
	Run     string `json:"run,omitempty"` // ID of the journal's run
	Control place  `json:"control"`
	Events  place  `json:"events"`
}

// A place describes the last durable line of a file. Seq is 0 if the file had none.
type place struct {
	Segment int    `json:"segment,omitempty"` // 0 means control.jsonl
	Seq     int64  `json:"seq"`
	Off     int64  `json:"off"` // offset of the line
	End     int64  `json:"end"` // offset after the line
	CRC     string `json:"crc"` // as in the line
}

func (p place) file() string {
	if p.Segment == 0 {
		return controlFile
	}
	return segmentFile(p.Segment)
}

// placeOf returns the place of a line, given without its newline.
func placeOf(segment int, seq, off int64, line []byte) place {
	p := place{Segment: segment, Seq: seq, Off: off, End: off + int64(len(line)) + 1}
	if _, rest, ok := bytes.Cut(line, []byte(`"crc":"`)); ok && len(rest) >= 8 {
		p.CRC = string(rest[:8])
	}
	return p
}

// seq returns the last number that the mark records.
func (m *mark) seq() int64 { return max(m.Control.Seq, m.Events.Seq) }

// covers reports whether data at off in a file was durable.
func (m *mark) covers(segment int, off int64) bool {
	switch {
	case segment == 0:
		return off < m.Control.End
	case segment == m.Events.Segment:
		return off < m.Events.End
	}
	return segment < m.Events.Segment
}

// append encodes the mark as JSON, padded with spaces to its size, with a checksum at the end.
func (m *mark) append(dst []byte) ([]byte, error) {
	body, err := json.Marshal(m)
	if err != nil {
		return dst, err
	}
	const tail = len(" 01234567\n")
	if len(body) > markSize-tail {
		return dst, fmt.Errorf("a mark of %d bytes", len(body))
	}
	start := len(dst)
	dst = append(dst, body...)
	for len(dst) < start+markSize-tail {
		dst = append(dst, ' ')
	}
	return fmt.Appendf(dst, " %08x\n", crc32.Checksum(dst[start:], castagnoli)), nil
}

// readMark returns nil if there is no mark or it cannot be parsed.
func readMark(dir string) *mark {
	data, err := os.ReadFile(filepath.Join(dir, markFile))
	if err != nil || len(data) != markSize {
		return nil
	}
	body, sum := data[:markSize-10], data[markSize-9:markSize-1]
	var m mark
	if crc, ok := hex32(sum); !ok || crc != crc32.Checksum(body, castagnoli) || json.Unmarshal(body, &m) != nil ||
		m.V != 1 {
		return nil
	}
	return &m
}

// HasMark reports whether the journal in dir has a valid mark.
func HasMark(dir string) bool { return readMark(dir) != nil }

// Begun reports whether the journal in dir has entries.
func Begun(dir string) bool {
	for _, name := range []string{controlFile, segmentFile(1), segmentFile(1) + packed} {
		if st, err := os.Stat(filepath.Join(dir, name)); err == nil && st.Size() > 0 {
			return true
		}
	}
	return false
}

// dropMark removes the mark before the data it describes is rewritten.
func dropMark(dir string) error {
	if err := os.Remove(filepath.Join(dir, markFile)); err != nil {
		if os.IsNotExist(err) {
			return nil
		}
		return fmt.Errorf("journal: %w", err)
	}
	if err := fsutil.SyncDir(dir); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	return nil
}

// A marker writes the mark.
type marker struct {
	f   *os.File
	now mark
	buf []byte
}

func (w *marker) open(dir, run string, found *found, sync bool) error {
	w.now = mark{V: 1, Run: run, Control: found.lastControl, Events: found.lastEvent}
	f, err := os.OpenFile(filepath.Join(dir, markFile), os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	w.f = f
	if err = w.write(); err == nil && sync {
		err = f.Sync()
	}
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	return nil
}

// write updates the file. After an error the mark lags behind, which is harmless.
func (w *marker) write() (err error) {
	if w.buf, err = w.now.append(w.buf[:0]); err == nil {
		_, err = w.f.WriteAt(w.buf, 0)
	}
	return err
}

func (w *marker) close(sync bool) {
	if w.f == nil {
		return
	}
	if sync {
		_ = w.f.Sync() // on an error the mark lags behind
	}
	w.f.Close()
}

// there checks that the line described by p is still in its file. It returns what is wrong, or "".
func (p place) there(dir string) (string, error) {
	f, err := os.Open(filepath.Join(dir, p.file()))
	if os.IsNotExist(err) {
		return "is missing", nil
	}
	if err != nil {
		return "", fmt.Errorf("journal: %w", err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return "", fmt.Errorf("journal: %w", err)
	}
	if st.Size() < p.End {
		return fmt.Sprintf("is cut: it has %d bytes, and had %d or more", st.Size(), p.End), nil
	}
	if p.Seq == 0 {
		return "", nil
	}
	line := make([]byte, p.End-p.Off)
	if _, err := f.ReadAt(line, p.Off); err != nil && err != io.EOF {
		return "", fmt.Errorf("journal: reading %s: %w", p.file(), err)
	}
	var r raw
	if n := len(line); line[n-1] != '\n' || r.parse(line[:n-1]) != nil || r.seq != p.Seq ||
		placeOf(p.Segment, p.Seq, p.Off, line[:n-1]) != p {
		return fmt.Sprintf("is not the file that was written, or is damaged: entry %d is not at byte %d", p.Seq, p.Off),
			nil
	}
	return "", nil
}
