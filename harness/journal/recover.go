package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/internal/fsutil"

	"github.com/evalrun/evalrun/harness/journal/internal/admit"
)

// Recovery. What it may find, and what it does:
//
//	a file ends in the middle of a line          cut: the line was never acknowledged
//	events that follow a missing control entry,  cut: the commit they belong to was not completed
//	  and no control entry after them
//	unparsable lines                             moved to quarantine/; their attempts are reported
//	entries missing in some other way            listed in quarantine/manifest.jsonl; open attempts
//	                                             are reported
//	an entry in a newer format                   nothing is changed; ErrNewer
//
// The third and the fourth case lose durable data, as far as the mark can tell. Open then changes
// nothing and returns an error that matches ErrLost; [Repair] handles these cases.
//
// Control entries are written only after the events before them are durable, so all numbers up to
// the last control entry must exist. Recovery reads only what a resume needs: control.jsonl, the
// last segment, and earlier segments that hold entries of attempts that are still open.

// A Recovery describes what Open found.
type Recovery struct {
	State   *State   // the state at that time; see Recovered
	Seq     int64    // number of the last entry
	Cut     int64    // bytes of incomplete commits that were cut
	Damages []Damage // damage found now; earlier damage is in the State
}

// Touched returns the attempts that lost a part of their record; their trials need new attempts.
func (r Recovery) Touched() []Touched {
	var out []Touched
	for _, d := range r.Damages {
		for _, t := range d.Touched {
			if !slices.Contains(out, t) {
				out = append(out, t)
			}
		}
	}
	return out
}

// Warnings describes the damage for the user.
func (r Recovery) Warnings() []string {
	var out []string
	for _, d := range r.Damages {
		out = append(out, d.String())
	}
	return out
}

type found struct {
	Recovery
	index       *admit.Index
	seq         int64
	segment     int // segment to write to
	segmentSize int64
	controlSize int64
	lastControl place
	lastEvent   place // in the segment to write to
}

// recoverDir makes a journal ready for writing. If durable data would be lost, it does so only if
// accept is set.
func recoverDir(dir string, accept bool) (*found, error) {
	if err := tidy(dir); err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	known, err := readManifest(dir)
	if err != nil {
		return nil, err
	}
	earlier := len(known)
	cut := int64(0)
	for range 10 { // each round repairs the first problem it finds; two rounds are nearly always enough
		s := survey{dir: dir, known: known, mark: readMark(dir), accept: accept}
		if err := s.read(); err != nil {
			return nil, err
		}
		n, damages, err := s.repair()
		if err != nil {
			return nil, err
		}
		cut += n
		known = append(known, damages...)
		if n == 0 && len(damages) == 0 {
			f := s.result()
			f.State.damage(known)
			f.Cut, f.Damages = cut, known[earlier:]
			return f, nil
		}
	}
	return nil, fmt.Errorf("journal: %s cannot be recovered: each repair brought up another damage; keep a copy and "+
		"start a new run", dir)
}

// tidy removes unfinished files of an earlier process.
func tidy(dir string) error {
	for _, sub := range []string{".", eventsDir, quarantineDir} {
		list, err := os.ReadDir(filepath.Join(dir, sub))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for _, d := range list {
			name := filepath.Join(dir, sub, d.Name())
			_, err := os.Lstat(name + packed) // a compressed segment gets its name when it is complete
			if strings.HasSuffix(name, partial) || err == nil && strings.HasSuffix(name, ".jsonl") {
				if err := os.Remove(name); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// repair cuts data or moves it to the quarantine, and returns what it did. If it did anything, the
// survey is out of date.
func (s *survey) repair() (cut int64, damages []Damage, err error) {
	files := append([]*fileSurvey{&s.control}, s.events...)
	if losses := s.losses(); len(losses) > 0 && !s.accept {
		return 0, nil, &LossError{losses}
	}
	for _, f := range files {
		ds, err := s.setApart(f)
		if err != nil {
			return 0, nil, err
		}
		damages = append(damages, ds...)
	}
	if len(damages) > 0 {
		return 0, damages, nil
	}
	for i, f := range files {
		if f.size > f.good && (i == 0 || i == len(files)-1) { // an incomplete last line
			if err := truncate(filepath.Join(s.dir, f.name), f.good); err != nil {
				return 0, nil, err
			}
			return f.size - f.good, nil, nil
		}
	}
	return s.gaps()
}

// gaps looks for missing numbers.
func (s *survey) gaps() (cut int64, damages []Damage, err error) {
	if s.base == 0 {
		return 0, nil, nil
	}
	seqs, ctl := s.seqs, int64(0)
	nextControl := func() {
		d, n := binary.Uvarint(seqs)
		if n <= 0 {
			ctl = 0
			return
		}
		seqs, ctl = seqs[n:], ctl+int64(d)
	}
	nextControl()
	for ctl != 0 && ctl < s.base {
		nextControl()
	}
	var lost Damage
	file := controlFile // the file in which the first gap ends
	expect := s.base
	see := func(seq int64) bool { // returns false if seq belongs to an incomplete commit
		from, to, gap := missing(expect, seq-1, s.known)
		if gap && from > s.control.last {
			return false
		}
		if gap {
			if lost.From == 0 {
				lost.From, lost.File = from, file
			}
			lost.To = to
		}
		return true
	}
	for _, f := range s.events {
		for _, r := range f.runs {
			if r.to < s.base {
				continue
			}
			file = f.name
			for ctl != 0 && ctl < r.from {
				see(ctl)
				expect = ctl + 1
				nextControl()
			}
			if !see(r.from) {
				return s.cutFrom(f, r.off)
			}
			expect = r.to + 1
		}
	}
	for ctl != 0 {
		see(ctl)
		expect = ctl + 1
		nextControl()
	}
	if lost.From == 0 {
		return 0, nil, nil
	}
	if !s.accept {
		return 0, nil, &LossError{[]Loss{{lost.File, "or a file before it lacks " + numbers(lost.From, lost.To)}}}
	}
	lost.File = ""
	for id, o := range s.open {
		if o.now != nil && o.now.first <= lost.To {
			lost.Touched = append(lost.Touched, Touched{id, o.now.number})
		}
	}
	sortTouched(lost.Touched)
	ds := []Damage{lost}
	return 0, ds, addManifest(s.dir, ds)
}

// cutFrom removes the events of f from off on, and all later segments. With accept it moves them to
// the quarantine, because they may have been acknowledged.
func (s *survey) cutFrom(f *fileSurvey, off int64) (cut int64, _ []Damage, err error) {
	if s.accept {
		ds, err := s.setTailApart(f, off)
		return 0, ds, err
	}
	for _, g := range slices.Backward(s.events) {
		if g.n <= f.n {
			break
		}
		cut += g.size
		if err := os.Remove(filepath.Join(s.dir, g.name)); err != nil {
			return 0, nil, fmt.Errorf("journal: %w", err)
		}
	}
	if err := fsutil.SyncDir(filepath.Join(s.dir, eventsDir)); err != nil {
		return 0, nil, fmt.Errorf("journal: %w", err)
	}
	return cut + f.size - off, nil, truncate(filepath.Join(s.dir, f.name), off)
}

func truncate(name string, size int64) error {
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	defer f.Close()
	if err := f.Truncate(size); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	return nil
}

// result converts the survey of an undamaged journal.
func (s *survey) result() *found {
	f := &found{index: admit.New(), segment: s.active.n, controlSize: s.control.good}
	f.seq = s.last()
	f.lastControl, f.lastEvent = s.control.tail, place{Segment: s.active.n}
	for _, e := range s.events {
		if e.n == s.active.n {
			f.segmentSize, f.lastEvent = e.good, e.tail
			f.lastEvent.Segment = e.n
		}
	}
	for _, d := range s.known { // a number is assigned only once, even if its entry is lost
		f.seq = max(f.seq, d.To)
	}
	for id, fence := range s.decided {
		f.index.Decide(id, fence)
	}
	for id, o := range s.open {
		t := &admit.Trial{Fence: o.fence, Last: o.last}
		if o.now != nil {
			t.Now = o.now.attempt()
		}
		for _, b := range o.cut {
			t.Cut = append(t.Cut, b.attempt())
		}
		f.index.Open[id] = t
	}
	f.index.Spans = maps.Clone(s.state.spans)
	f.State, f.Seq = s.state, f.seq
	return f
}

// last returns the largest number found.
func (s *survey) last() int64 {
	n := s.control.last
	for _, e := range s.events {
		n = max(n, e.last)
	}
	return n
}

func sortTouched(ts []Touched) {
	slices.SortFunc(ts, func(a, b Touched) int {
		if c := strings.Compare(a.Trial, b.Trial); c != 0 {
			return c
		}
		return a.Attempt - b.Attempt
	})
}
