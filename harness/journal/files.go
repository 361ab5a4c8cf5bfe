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

// A file is what the journal writes to. Tests replace it with files that fail.
type file interface {
	WriteAt(p []byte, off int64) (int, error)
	Sync() error // syncs the data and the metadata needed to read it, like fdatasync
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

// segmentFile returns the name of segment n, from 1, relative to the journal's folder.
func segmentFile(n int) string { return filepath.Join(eventsDir, fmt.Sprintf("%04d.jsonl", n)) }

// A segment is a file of events in the folder.
type segment struct {
	n      int
	packed bool
}

// file returns the segment's name relative to the journal's folder.
func (s segment) file() string {
	if s.packed {
		return segmentFile(s.n) + packed
	}
	return segmentFile(s.n)
}

// segments lists the segments in order. If one exists in both forms, the compressed one counts.
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

// nextSegment returns the number of the first segment after n, or 0 if there is none.
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
