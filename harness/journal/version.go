package journal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// CheckVersion returns ErrNewer if a later version of evalrun has written to the journal in dir. It
// changes nothing, and reads only the ends of files, because newer entries come last. It ignores
// damage, which Open detects.
func CheckVersion(dir string) error {
	names := []string{controlFile}
	segs, err := segments(dir)
	if err != nil {
		return err
	}
	// After a compressed segment there are entries in control.jsonl.
	if n := len(segs); n > 0 && !segs[n-1].packed {
		names = append(names, segmentFile(segs[n-1].n))
	}
	for _, name := range names {
		v, err := lastVersion(filepath.Join(dir, name))
		if err != nil {
			return fmt.Errorf("journal: %w", err)
		}
		if err := newer(v); err != nil {
			return err
		}
	}
	return nil
}

// lastVersion returns the version of the last parsable line of a file, or 0 if there is none near
// its end.
func lastVersion(name string) (int, error) {
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	for n := int64(64 << 10); ; n *= 4 {
		from := max(0, st.Size()-n)
		tail, err := io.ReadAll(io.NewSectionReader(f, from, st.Size()-from))
		if err != nil {
			return 0, err
		}
		if from > 0 { // it begins inside a line
			_, tail, _ = bytes.Cut(tail, []byte("\n"))
		}
		lines := bytes.Split(tail, []byte("\n"))
		for i := len(lines) - 1; i >= 0; i-- {
			var r raw
			if len(lines[i]) > 0 && r.parse(lines[i]) == nil {
				return r.v, nil
			}
		}
		if from == 0 || n > maxLine {
			return 0, nil
		}
	}
}
