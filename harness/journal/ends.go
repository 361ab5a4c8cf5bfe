package journal

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/klauspost/compress/zstd"
)

// Checks of finished segments that do not read them: a plain segment ends with a complete line, an
// archive still has its recorded size, and no numbers are missing between segments.

// An extent is what the ends of a segment tell about it.
type extent struct {
	first, last int64  // numbers of its first and last entry; 0 if unknown
	why         string // what is wrong; "" if nothing
}

// extentOf reads the ends of a segment.
func extentOf(dir string, s segment) (x extent, err error) {
	f, err := os.Open(filepath.Join(dir, s.file()))
	if err != nil {
		return x, fmt.Errorf("journal: %w", err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return x, fmt.Errorf("journal: %w", err)
	}
	if s.packed {
		return packedExtent(f, st.Size())
	}
	return plainExtent(f, st.Size())
}

func plainExtent(f *os.File, size int64) (x extent, err error) {
	if size == 0 {
		return x, nil
	}
	var lr lineReader
	var r raw
	line, err := lr.at(f, 0)
	if err == nil && r.parse(line) == nil {
		x.first = r.seq
	} else if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return x, fmt.Errorf("journal: reading %s: %w", filepath.Base(f.Name()), err)
	}
	for n := int64(64 << 10); ; n *= 4 {
		n = min(n, size)
		buf := make([]byte, n)
		if _, err := f.ReadAt(buf, size-n); err != nil && err != io.EOF {
			return x, fmt.Errorf("journal: reading %s: %w", filepath.Base(f.Name()), err)
		}
		if buf[n-1] == '\n' {
			from := bytes.LastIndexByte(buf[:n-1], '\n')
			if from < 0 && n < size && n < 2*maxLine {
				continue
			}
			if r.parse(buf[from+1:n-1]) == nil {
				x.last = r.seq
			}
		}
		break
	}
	switch {
	case x.first == 0:
		x.why = "is damaged: its first line is not understood"
	case x.last == 0:
		x.why = "is cut, or damaged at its end: its last line is not understood"
	}
	return x, nil
}

// An archive begins with a skippable zstd frame. Archives of older versions have none.
const (
	aboutMagic = 0x184D2A50
	aboutSize  = 128 // including the frame's 8-byte header
)

// An about is an archive's description of itself.
type about struct {
	Size  int64 `json:"size"` // size of the archive, including this frame
	First int64 `json:"first"`
	Last  int64 `json:"last"`
}

func (a about) frame() ([]byte, error) {
	text, err := json.Marshal(a)
	if err != nil {
		return nil, err
	}
	out := binary.LittleEndian.AppendUint32(nil, aboutMagic)
	out = binary.LittleEndian.AppendUint32(out, aboutSize-8)
	out = append(out, text...)
	return append(out, bytes.Repeat([]byte(" "), aboutSize-len(out))...), nil
}

func packedExtent(f *os.File, size int64) (x extent, err error) {
	head := make([]byte, aboutSize)
	n, err := f.ReadAt(head, 0)
	if err != nil && err != io.EOF {
		return x, fmt.Errorf("journal: reading %s: %w", filepath.Base(f.Name()), err)
	}
	var h zstd.Header
	if n >= 4 && h.Decode(head[:n]) == nil && !h.Skippable {
		return x, nil
	}
	var a about
	if n < aboutSize || binary.LittleEndian.Uint32(head) != aboutMagic || json.Unmarshal(head[8:], &a) != nil {
		return extent{why: "is damaged: it does not begin as an archive does"}, nil
	}
	if a.Size != size {
		return extent{why: fmt.Sprintf("is not the archive that was written: it has %d bytes, and had %d", size,
			a.Size)}, nil
	}
	return extent{first: a.First, last: a.Last}, nil
}

// A hole is a range of numbers between two segments that are neither in control.jsonl nor accounted
// for.
type hole struct {
	file     string // the segment before it
	from, to int64
}

// holes returns the numbers missing between segments whose extents are known. If control.jsonl is
// damaged or ends earlier, it may have held them; its readers report that.
func holes(dir string, segs []segment, extents []extent, known []Damage) (out []hole, err error) {
	var between []hole
	last, file := int64(-1), ""
	for i, s := range segs {
		x := extents[i]
		if x.first == 0 || x.last == 0 {
			last = -1
			continue
		}
		if last >= 0 && x.first > last+1 {
			between = append(between, hole{file, last + 1, x.first - 1})
		}
		last, file = x.last, s.file()
	}
	if len(between) == 0 {
		return nil, nil
	}
	note := func(h hole, from, to int64) {
		if a, b, gap := missing(from, to, known); gap {
			if n := len(out); n > 0 && out[n-1].file == h.file {
				out[n-1].to = b
				return
			}
			out = append(out, hole{h.file, a, b})
		}
	}
	next := between[0].from
	control := &fileSurvey{name: controlFile}
	err = control.read(dir, func(r *raw, _ int64) {
		for len(between) > 0 && r.seq > between[0].to {
			note(between[0], next, between[0].to)
			if between = between[1:]; len(between) > 0 {
				next = between[0].from
			}
		}
		if len(between) > 0 && r.seq >= next {
			note(between[0], next, r.seq-1)
			next = r.seq + 1
		}
	})
	if len(control.bad) > 0 {
		return nil, err
	}
	return out, err
}

// intact reports whether an archive can be read to its end.
func intact(dir string, s segment) (bool, error) {
	x, err := extentOf(dir, s)
	if err != nil || x.why != "" {
		return false, err
	}
	c := &cursor{dir: dir, segment: s.n, names: names{}}
	defer c.close()
	for {
		_, err := c.next()
		switch {
		case fatal(err) && err != io.EOF:
			return false, err
		case err != nil && err != io.EOF:
			return false, nil
		case err == io.EOF || c.segment != s.n:
			return true, nil
		}
	}
}
