package journal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/internal/fsutil"
)

// Repair prepares a journal to continue without what Verify or Open reported as lost. It moves what
// is left of the damaged parts to quarantine/ and lists everything lost in the manifest, so that
// later readers do not report it again. upTo is the last entry that the journal is known to have
// had; numbers up to it are not assigned again. If nothing is lost, Repair changes nothing that
// Open would not change.
func Repair(dir string, upTo int64) ([]Damage, error) {
	known, err := readManifest(dir)
	if err != nil {
		return nil, err
	}
	m := readMark(dir)
	if m != nil {
		upTo = max(upTo, m.seq())
	}
	if err := dropMark(dir); err != nil {
		return nil, err
	}
	gone, err := goneSegments(dir, m, known)
	if err != nil {
		return nil, err
	}
	last, err := lastControl(dir)
	if err != nil {
		return nil, err
	}
	orphans, err := orphaned(dir, last)
	if err != nil {
		return nil, err
	}
	broken, err := openArchives(dir)
	if err != nil {
		return nil, err
	}
	if err := addManifest(dir, slices.Concat(gone, orphans, broken)); err != nil {
		return nil, err
	}
	found, err := recoverDir(dir, true)
	if err != nil {
		return nil, err
	}
	out := slices.Concat(gone, orphans, broken, found.Damages)
	between, err := closeHoles(dir)
	if err != nil {
		return nil, err
	}
	out = append(out, between...)
	// For what control.jsonl lost at its end, only the numbers are known.
	if known, err = readManifest(dir); err != nil {
		return nil, err
	}
	from, to, err := absent(dir, found.lastControl.Seq+1, max(upTo, found.seq), known)
	if err != nil {
		return nil, err
	}
	if from > 0 {
		d := []Damage{{File: controlFile, From: from, To: to}}
		if err := addManifest(dir, d); err != nil {
			return nil, err
		}
		out = append(out, d...)
	}
	return out, nil
}

// goneSegments returns the missing segments.
func goneSegments(dir string, m *mark, known []Damage) (out []Damage, err error) {
	segs, err := segments(dir)
	if err != nil {
		return nil, err
	}
	end := 0
	if m != nil {
		end = m.Events.Segment
	}
	if n := len(segs); n > 0 {
		end = max(end, segs[n-1].n)
	}
	last := int64(0) // last number of the previous segment
	for n := 1; n <= end; n++ {
		i, ok := slices.BinarySearchFunc(segs, n, func(s segment, n int) int { return s.n - n })
		if ok {
			continue
		}
		if accounted(known, segmentFile(n)) {
			continue
		}
		if i > 0 {
			if _, last, err = firstLast(dir, segs[i-1]); err != nil {
				return nil, err
			}
		}
		d := Damage{File: segmentFile(n), From: last + 1, To: last}
		if i < len(segs) {
			first, _, err := firstLast(dir, segs[i])
			if err != nil {
				return nil, err
			}
			d.To = max(last, first-1)
		} else if m != nil {
			d.To = max(last, m.Events.Seq)
		}
		if d.Touched, err = unfinished(dir, d.To); err != nil {
			return nil, err
		}
		out = append(out, d)
	}
	return out, nil
}

// unfinished returns the attempts without a verdict that started before an entry.
func unfinished(dir string, before int64) (out []Touched, err error) {
	open := map[Touched]bool{}
	err = (&fileSurvey{name: controlFile}).read(dir, func(r *raw, _ int64) {
		t := Touched{string(r.trial), r.attempt}
		switch string(r.kind) {
		case record.KindAttempt:
			open[t] = r.seq < before
		case record.KindVerdict:
			delete(open, t)
		}
	})
	for t, touched := range open {
		if touched {
			out = append(out, t)
		}
	}
	sortTouched(out)
	return out, err
}

// firstLast returns the first and the last readable number in a segment, or 0.
func firstLast(dir string, s segment) (first, last int64, err error) {
	c := &cursor{dir: dir, segment: s.n, names: names{}}
	defer c.close()
	for {
		e, err := c.next()
		if err == io.EOF || c.segment != s.n {
			return first, last, nil
		}
		if fatal(err) {
			return 0, 0, err
		}
		if err != nil {
			continue
		}
		if first == 0 {
			first = e.Seq
		}
		last = e.Seq
	}
}

// orphaned moves compressed segments that begin after the end of control.jsonl to the quarantine.
// They hold events of attempts whose start or verdict is lost, because a segment is compressed only
// when all its attempts are decided. A segment that continues beyond the end of control.jsonl is
// decompressed, so that recovery can cut it.
func orphaned(dir string, lastControl int64) (out []Damage, err error) {
	segs, err := segments(dir)
	if err != nil {
		return nil, err
	}
	known, err := ReadState(dir)
	if err != nil {
		return nil, err
	}
	for _, s := range slices.Backward(segs) {
		if !s.packed {
			continue
		}
		first, last, err := firstLast(dir, s)
		if err != nil {
			return nil, err
		}
		if last <= lastControl {
			break
		}
		if first <= lastControl {
			if err := unpackFile(filepath.Join(dir, segmentFile(s.n))); err != nil {
				return nil, fmt.Errorf("journal: unpacking %s: %w", s.file(), err)
			}
			break
		}
		st, err := os.Stat(filepath.Join(dir, s.file()))
		if err != nil {
			return nil, fmt.Errorf("journal: %w", err)
		}
		d := Damage{File: s.file(), Bytes: st.Size(), From: first, To: last, Saved: savedAs(s.file(), 0)}
		if d.Touched, err = undecided(dir, s.n, 0, known); err != nil {
			return nil, err
		}
		if err := toQuarantine(dir, s.file(), d.Saved); err != nil {
			return nil, err
		}
		out = append(out, d)
	}
	slices.Reverse(out)
	return out, nil
}

// openArchives replaces damaged archives by plain files, as far as they can be read, so that
// recovery can examine their lines. The archives are kept in quarantine/.
func openArchives(dir string) (out []Damage, err error) {
	segs, err := segments(dir)
	if err != nil {
		return nil, err
	}
	for _, s := range segs {
		if !s.packed {
			continue
		}
		if ok, err := intact(dir, s); err != nil {
			return nil, err
		} else if ok {
			continue
		}
		st, err := os.Stat(filepath.Join(dir, s.file()))
		if err != nil {
			return nil, fmt.Errorf("journal: %w", err)
		}
		// The range From to To is empty: missing entries are found later.
		d := Damage{File: s.file(), Bytes: st.Size(), Saved: savedAs(s.file(), 0), From: 1}
		if err := unpackTo(filepath.Join(dir, segmentFile(s.n))); err != nil {
			return nil, fmt.Errorf("journal: unpacking %s: %w", s.file(), err)
		}
		if err := toQuarantine(dir, s.file(), d.Saved); err != nil {
			return nil, err
		}
		out = append(out, d)
	}
	return out, nil
}

// closeHoles records what is missing between segments.
func closeHoles(dir string) (out []Damage, err error) {
	known, err := readManifest(dir)
	if err != nil {
		return nil, err
	}
	segs, err := segments(dir)
	if err != nil {
		return nil, err
	}
	extents := make([]extent, len(segs))
	for i, s := range segs {
		if extents[i], err = extentOf(dir, s); err != nil {
			return nil, err
		}
	}
	lack, err := holes(dir, segs, extents, known)
	if err != nil {
		return nil, err
	}
	for _, h := range lack {
		d := Damage{File: h.file, From: h.from, To: h.to}
		if d.Touched, err = unfinished(dir, h.to); err != nil {
			return nil, err
		}
		out = append(out, d)
	}
	return out, addManifest(dir, out)
}

// savedAs returns the name in quarantine/ for a part of a file.
func savedAs(file string, off int64) string {
	base := filepath.Base(file)
	for ext := filepath.Ext(base); ext != ""; ext = filepath.Ext(base) {
		base = base[:len(base)-len(ext)]
	}
	name := fmt.Sprintf("%s-%d-%s.bad", base, off, time.Now().UTC().Format("20060102T150405"))
	if filepath.Ext(file) == packed {
		name += packed
	}
	return name
}

// toQuarantine moves a whole file.
func toQuarantine(dir, file, name string) error {
	q := filepath.Join(dir, quarantineDir)
	err := os.MkdirAll(q, 0o755)
	if err == nil {
		err = os.Rename(filepath.Join(dir, file), filepath.Join(q, name))
	}
	if err == nil {
		err = fsutil.SyncDir(q)
	}
	if err == nil {
		err = fsutil.SyncDir(filepath.Dir(filepath.Join(dir, file)))
	}
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	return nil
}

// unpackFile replaces name.zst by name. It keeps what can be read of a damaged archive.
func unpackFile(name string) error {
	if err := unpackTo(name); err != nil {
		return err
	}
	return os.Remove(name + packed)
}

// unpackTo creates name from name.zst, which it keeps.
func unpackTo(name string) error {
	in, err := os.Open(name + packed)
	if err != nil {
		return err
	}
	defer in.Close()
	z, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true))
	if err != nil {
		return err
	}
	defer z.Close()
	out, err := os.OpenFile(name+partial, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	w := &failing{w: out}
	_, err = io.Copy(w, z)
	if w.err == nil {
		err = out.Sync() // a read error means damage
	}
	if cerr := out.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(name+partial, name)
	}
	if err != nil {
		os.Remove(name + partial)
		return err
	}
	return fsutil.SyncDir(filepath.Dir(name))
}

// A failing remembers a write error, to distinguish it from a read error.
type failing struct {
	w   io.Writer
	err error
}

func (f *failing) Write(p []byte) (int, error) {
	n, err := f.w.Write(p)
	if err != nil {
		f.err = err
	}
	return n, err
}

// losses returns durable data that the survey found missing or unparsable. It is not repaired
// without consent.
func (s *survey) losses() []Loss {
	var out []Loss
	for _, f := range append([]*fileSurvey{&s.control}, s.events...) {
		for _, b := range s.ranges(f) {
			if s.mark != nil && !s.mark.covers(f.n, b.from) {
				continue // it was never acknowledged
			}
			text := fmt.Sprintf("is damaged: %d bytes at byte %d are not understood", b.to-b.from, b.from)
			if b.until > b.after+1 {
				text += fmt.Sprintf(" (of the entries %d to %d)", b.after+1, b.until-1)
			} else if b.until == 0 {
				text += fmt.Sprintf(" (entries after %d)", b.after)
			}
			out = append(out, Loss{f.name, text})
		}
	}
	return out
}

// moveTail moves the end of a file to the quarantine.
func moveTail(dir, file string, off int64, name string) error {
	in, err := os.Open(filepath.Join(dir, file))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	defer in.Close()
	st, err := in.Stat()
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	if err := os.MkdirAll(filepath.Join(dir, quarantineDir), 0o755); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	out, err := os.OpenFile(filepath.Join(dir, quarantineDir, name), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err == nil {
		_, err = io.Copy(out, io.NewSectionReader(in, off, st.Size()-off))
		if err == nil {
			err = out.Sync()
		}
		if cerr := out.Close(); err == nil {
			err = cerr
		}
	}
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	return truncate(filepath.Join(dir, file), off)
}
