package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/evalrun/evalrun/internal/fsutil"
)

const (
	controlFile   = "control.jsonl"
	eventsDir     = "events"
	quarantineDir = "quarantine"
	ballastFile   = "ballast"
	packed        = ".zst"
	partial       = fsutil.Partial
)

// A file is what the journal writes to. Tests put files that fail in its place.
type file interface {
	WriteAt(p []byte, off int64) (int, error)
	Sync() error // of the data and what is needed to read it
	Close() error
}

type osFile struct{ *os.File }

func (f osFile) Sync() error { return datasync(f.File) }

func openFile(name string) (file, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

// segmentFile is the name of a segment of events, from 1, in the journal's folder.
func segmentFile(n int) string { return filepath.Join(eventsDir, fmt.Sprintf("%04d.jsonl", n)) }

// A segment as it lies in the folder.
type segment struct {
	n      int
	packed bool
}

// file is the segment's name in the journal's folder.
func (s segment) file() string {
	if s.packed {
		return segmentFile(s.n) + packed
	}
	return segmentFile(s.n)
}

// segments lists what there is, in order. Of a segment that is there in both forms the packed one
// counts.
func segments(dir string) ([]segment, error) {
	list, err := os.ReadDir(filepath.Join(dir, eventsDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	var out []segment
	for _, d := range list {
		name, isPacked := strings.CutSuffix(d.Name(), packed)
		num, ok := strings.CutSuffix(name, ".jsonl")
		n, err := strconv.Atoi(num)
		if !ok || err != nil || n < 1 {
			continue
		}
		out = append(out, segment{n, isPacked})
	}
	slices.SortFunc(out, func(a, b segment) int {
		if a.n != b.n {
			return a.n - b.n
		}
		if a.packed {
			return -1
		}
		return 1
	})
	return slices.CompactFunc(out, func(a, b segment) bool { return a.n == b.n }), nil
}

// nextSegment is the first segment after n that is there; 0: none.
func nextSegment(dir string, n int) (int, error) {
	segs, err := segments(dir)
	if err != nil {
		return 0, err
	}
	for _, s := range segs {
		if s.n > n {
			return s.n, nil
		}
	}
	return 0, nil
}
