package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/internal/fsutil"
)

const manifestFile = "manifest.jsonl"

// readManifest returns the damages of earlier recoveries, in the order in which they were found.
func readManifest(dir string) ([]Damage, error) {
	name := filepath.Join(dir, quarantineDir, manifestFile)
	data, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	var out []Damage
	for line := range bytes.Lines(data) {
		var d Damage
		if err := json.Unmarshal(line, &d); err != nil {
			return nil, fmt.Errorf("journal: %s: %w; it says what was lost: put it right, or remove it to have the "+
				"journal looked through again", name, err)
		}
		out = append(out, d)
	}
	return out, nil
}

func addManifest(dir string, ds []Damage) error {
	if len(ds) == 0 {
		return nil
	}
	old, err := readManifest(dir)
	if err != nil {
		return err
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	for _, d := range old {
		if err := enc.Encode(d); err != nil {
			return err
		}
	}
	for i := range ds {
		ds[i].Time = time.Now().UTC().Truncate(time.Second)
		if err := enc.Encode(ds[i]); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Join(dir, quarantineDir), 0o755); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	if err := fsutil.WriteFile(filepath.Join(dir, quarantineDir, manifestFile), buf.Bytes()); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	return nil
}

// ranges returns the damaged parts of a file. It omits an incomplete last line of the active file,
// which is cut instead.
func (s *survey) ranges(f *fileSurvey) (out []badRange) {
	for _, b := range f.bad {
		tail := b.until == 0
		if tail && !b.whole && (f.n == 0 || f.n == s.active.n) {
			continue
		}
		out = append(out, b)
	}
	return out
}

// setTailApart moves the events of f from off on, and all later segments, to the quarantine.
func (s *survey) setTailApart(f *fileSurvey, off int64) (ds []Damage, err error) {
	for _, g := range s.events {
		from := int64(0)
		switch {
		case g.n < f.n:
			continue
		case g.n == f.n:
			from = off
		}
		d := Damage{File: g.name, Off: from, Bytes: g.size - from, To: g.last, Saved: savedAs(g.name, from)}
		for _, r := range g.runs {
			if r.off >= from && d.From == 0 {
				d.From = r.from
			}
		}
		if d.Touched, err = undecided(s.dir, g.n, from, s.state); err != nil {
			return nil, err
		}
		ds = append(ds, d)
	}
	if err := addManifest(s.dir, ds); err != nil {
		return nil, err
	}
	for _, d := range slices.Backward(ds) {
		if d.Off == 0 {
			err = toQuarantine(s.dir, d.File, d.Saved)
		} else {
			err = moveTail(s.dir, d.File, d.Off, d.Saved)
		}
		if err != nil {
			return nil, err
		}
	}
	return ds, nil
}

// undecided returns the attempts in a segment, from off on, that control.jsonl does not know or has
// no verdict of.
func undecided(dir string, segment int, off int64, known *State) ([]Touched, error) {
	named := map[Touched]bool{}
	c := &cursor{dir: dir, segment: segment, names: names{}}
	defer c.close()
	for {
		e, err := c.next()
		if err == io.EOF || c.segment != segment {
			break
		}
		if fatal(err) {
			return nil, err
		}
		if err != nil || c.off < off || e.Trial == "" {
			continue
		}
		st, _ := known.get([]byte(e.Trial))
		if e.Attempt > int(st.Last) || e.Attempt == int(st.Open) {
			named[Touched{e.Trial, e.Attempt}] = true
		}
	}
	out := slices.Collect(maps.Keys(named))
	sortTouched(out)
	return out, nil
}

// setApart moves the unparsable lines of f to the quarantine. It leaves an incomplete last line,
// which is cut instead.
func (s *survey) setApart(f *fileSurvey) ([]Damage, error) {
	ranges := s.ranges(f)
	if len(ranges) == 0 {
		return nil, nil
	}
	name := filepath.Join(s.dir, f.name)
	in, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	defer in.Close()
	if err := os.MkdirAll(filepath.Join(s.dir, quarantineDir), 0o755); err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	var ds []Damage
	for _, b := range ranges {
		data := make([]byte, b.to-b.from)
		if _, err := in.ReadAt(data, b.from); err != nil {
			return nil, fmt.Errorf("journal: reading the damaged part of %s: %w", f.name, err)
		}
		d := Damage{File: f.name, Off: b.from, Bytes: b.to - b.from, From: b.after + 1, To: b.until - 1}
		if b.until == 0 { // nothing follows in this file, but later entries of the other one must stay
			d.To = max(b.after, s.last())
		}
		d.Saved = savedAs(f.name, b.from)
		if err := fsutil.WriteFile(filepath.Join(s.dir, quarantineDir, d.Saved), data); err != nil {
			return nil, fmt.Errorf("journal: %w", err)
		}
		if d.Touched, err = s.touched(data, b); err != nil {
			return nil, err
		}
		ds = append(ds, d)
	}
	// Write the manifest first: after a crash in between, the range is found and listed again.
	if err := addManifest(s.dir, ds); err != nil {
		return nil, err
	}
	return ds, without(name, in, f.size, ranges)
}

// without rewrites a file without some ranges.
func without(name string, in *os.File, size int64, ranges []badRange) error {
	out, err := os.OpenFile(name+partial, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	from := int64(0)
	for _, b := range append(ranges, badRange{from: size}) {
		if _, err = io.Copy(out, io.NewSectionReader(in, from, b.from-from)); err != nil {
			break
		}
		from = b.to
	}
	if err == nil {
		err = out.Sync()
	}
	if cerr := out.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(name+partial, name)
	}
	if err == nil {
		err = fsutil.SyncDir(filepath.Dir(name))
	}
	if err != nil {
		os.Remove(name + partial)
		return fmt.Errorf("journal: setting damaged lines apart: %w", err)
	}
	return nil
}

var whose = regexp.MustCompile(`"trial":"([^"\\]{1,200})","attempt":([0-9]{1,9})[,}]`)

// touched returns which attempts lost entries in a damaged range: those still named in its lines
// that were open at the time, or else all attempts that were open.
func (s *survey) touched(data []byte, b badRange) ([]Touched, error) {
	until := b.until
	if until == 0 {
		until = 1 << 62
	}
	all := map[Touched]bool{}
	if err := s.openBetween(b.after, until, all); err != nil {
		return nil, err
	}
	named := map[Touched]bool{}
	told, lines := 0, 0
	for line := range bytes.Lines(data) {
		lines++
		before := told
		// There are two if the newline between them was damaged.
		for _, m := range whose.FindAllSubmatch(line, -1) {
			n, _ := strconv.Atoi(string(m[2]))
			t := Touched{string(m[1]), n}
			if all[t] {
				told = before + 1
			} else if _, ok := s.state.get(m[1]); ok {
				continue
			} // otherwise this is all that is left of the trial, or a damaged name: reporting it does no harm
			named[t] = true
		}
	}
	if told < lines {
		maps.Copy(named, all)
	}
	out := slices.Collect(maps.Keys(named))
	sortTouched(out)
	return out, nil
}

// openBetween adds the attempts that were open at some time between two numbers.
func (s *survey) openBetween(after, until int64, set map[Touched]bool) error {
	open := map[Touched]int64{}
	err := (&fileSurvey{name: controlFile}).read(s.dir, func(r *raw, _ int64) {
		t := Touched{string(r.trial), r.attempt}
		from, begun := open[t]
		switch string(r.kind) {
		case record.KindAmend, record.KindSpent:
		case record.KindAttempt:
			if !begun {
				open[t] = r.seq
			}
		case record.KindVerdict: // if the entry that started it was lost, from is 0
			if from < until && r.seq > after {
				set[t] = true
			}
			delete(open, t)
		default:
			open[t] = from
		}
	})
	for t, from := range open {
		if from < until {
			set[t] = true
		}
	}
	return err
}
