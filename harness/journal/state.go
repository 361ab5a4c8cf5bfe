package journal

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"

	"github.com/evalrun/evalrun/harness/ledger"
	"github.com/evalrun/evalrun/harness/record"

	"github.com/evalrun/evalrun/harness/journal/internal/admit"
)

// A TrialState is where a trial stands.
type TrialState struct {
	ledger.Trial
	// Damaged says that a part of the newest attempt's record was found damaged and was
	// quarantined, so that the trial has to be attempted once more, whatever its verdict.
	Damaged bool
}

// A State is what a resume needs to know, read from control.jsonl alone. It takes about 60 bytes a
// trial, and is not safe for changes while it is read: it is a picture of the moment.
type State struct {
	dir      string
	hex      map[[10]byte]TrialState // the trials, by ID; this form is a quarter of the size
	other    map[string]TrialState   // IDs that are not 20 hexadecimal digits
	evidence map[string][]int64      // where in control.jsonl, of trials that are not scored
	began    map[string]int64        // the entry that began a trial's open attempt
	spans    map[string][]admit.Span // of trials that are not closed: their ended attempts
	fence    int64
	seq      int64
	retries  int
}

func newState(dir string) *State {
	return &State{dir: dir, hex: map[[10]byte]TrialState{}, other: map[string]TrialState{},
		evidence: map[string][]int64{},
		began:    map[string]int64{}, spans: map[string][]admit.Span{}}
}

// ReadState reads the state of the journal in dir. Another process may be writing: it is then a
// moment of its. Lines that cannot be understood are passed over, as Open will name them. No
// journal at all is an empty state.
func ReadState(dir string) (*State, error) {
	s := newState(dir)
	f, err := os.Open(filepath.Join(dir, controlFile))
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	defer f.Close()
	in := newLines(f, 0)
	last := int64(0)
	for {
		line, off, err := in.next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("journal: %w", err)
		}
		var r raw
		if r.parse(line) != nil || r.seq <= last {
			continue
		}
		last = r.seq
		if err := newer(r.v); err != nil {
			return nil, err
		}
		s.apply(&r, off)
	}
	damages, err := readManifest(dir)
	if err != nil {
		return nil, err
	}
	s.damage(damages)
	return s, nil
}

// Trial returns where a trial stands; false when nothing is known of it.
func (s *State) Trial(id string) (TrialState, bool) {
	return s.get([]byte(id))
}

// All yields every trial that was begun, in no order.
func (s *State) All() iter.Seq2[string, TrialState] {
	return func(yield func(string, TrialState) bool) {
		for k, st := range s.hex {
			if !yield(hex.EncodeToString(k[:]), st) {
				return
			}
		}
		for k, st := range s.other {
			if !yield(k, st) {
				return
			}
		}
	}
}

// Len is the number of trials that were begun.
func (s *State) Len() int { return len(s.hex) + len(s.other) }

// Fence is the newest fence of all trials; leases handed out from now on begin above it.
func (s *State) Fence() int64 { return s.fence }

// Retries is how many attempts were retries of a failed one: they are taken from the run's budget
// of retries.
func (s *State) Retries() int { return s.retries }

// Seq is the last entry that the state knows of.
func (s *State) Seq() int64 { return s.seq }

// Evidence reads the evidence entries that TrialState.Evidence speaks of, a stage after the other.
func (s *State) Evidence(trial string) ([]record.Entry, error) {
	at := s.evidence[trial]
	if len(at) == 0 {
		return nil, nil
	}
	f, err := os.Open(filepath.Join(s.dir, controlFile))
	if err != nil {
		return nil, fmt.Errorf("journal: evidence of trial %s: %w", trial, err)
	}
	defer f.Close()
	var out []record.Entry
	var lr lineReader
	for _, off := range at {
		line, err := lr.at(f, off)
		if err != nil {
			return nil, fmt.Errorf("journal: evidence of trial %s: %w", trial, err)
		}
		var r raw
		if err := r.parse(line); err != nil || string(r.trial) != trial {
			return nil, fmt.Errorf("journal: evidence of trial %s is no longer at byte %d of %s: read the state anew",
				trial, off, controlFile)
		}
		out = append(out, r.toEntry(names{}))
	}
	return out, nil
}

func (s *State) get(id []byte) (TrialState, bool) {
	if k, ok := hexKey(id); ok {
		st, ok := s.hex[k]
		return st, ok
	}
	st, ok := s.other[string(id)]
	return st, ok
}

func (s *State) set(id []byte, st TrialState) {
	if k, ok := hexKey(id); ok {
		s.hex[k] = st
		return
	}
	s.other[string(id)] = st
}

// hexKey packs an ID of 20 lower-case hexadecimal digits.
func hexKey(id []byte) (k [10]byte, ok bool) {
	if len(id) != 20 {
		return k, false
	}
	for i, b := range id {
		switch {
		case b >= '0' && b <= '9':
			b -= '0'
		case b >= 'a' && b <= 'f':
			b -= 'a' - 10
		default:
			return k, false
		}
		k[i/2] = k[i/2]<<4 | b
	}
	return k, true
}

// apply takes in one line of control.jsonl that begins at off.
func (s *State) apply(r *raw, off int64) {
	s.seq = max(s.seq, r.seq)
	s.fence = max(s.fence, r.fence)
	st, _ := s.get(r.trial)
	had := st.Evidence
	first := st.First
	l := r.ledger()
	switch st.Apply(&l) {
	case ledger.Began:
		st.Damaged = false
		id := string(r.trial)
		s.began[id] = r.seq
		if st.First != first {
			delete(s.spans, id)
		}
		if ledger.Retries(r.data) {
			s.retries++
		}
	case ledger.Judged, ledger.Decided:
		id := string(r.trial)
		if st.Decided && !ledger.Reopens(st.Status()) {
			delete(s.spans, id)
			delete(s.evidence, id)
		} else if from, ok := s.began[id]; ok {
			s.spans[id] = append(s.spans[id], admit.Span{Attempt: r.attempt, From: from, To: r.seq})
		}
		delete(s.began, id)
	case ledger.Kept:
		id := string(r.trial)
		if st.Evidence != had {
			delete(s.evidence, id)
		}
		s.evidence[id] = append(s.evidence[id], off)
	}
	if had != 0 && st.Evidence == 0 {
		delete(s.evidence, string(r.trial))
	}
	s.set(r.trial, st)
}

// ledger is the line as the fold of entries sees it.
func (r *raw) ledger() ledger.Line {
	return ledger.Line{Attempt: r.attempt, Fence: r.fence, Kind: kinds[string(r.kind)], Data: r.data}
}

// kinds saves a string a line.
var kinds = map[string]string{
	record.KindAttempt: record.KindAttempt, record.KindStage: record.KindStage,
	record.KindEvidence: record.KindEvidence,
	record.KindResult:   record.KindResult, record.KindVerdict: record.KindVerdict, record.KindAmend: record.KindAmend,
}

// damage marks the trials whose newest attempt was touched.
func (s *State) damage(ds []Damage) {
	for _, d := range ds {
		for _, t := range d.Touched {
			// Of a trial that is not known all of control.jsonl may be lost, but not its events:
			// its number is used up.
			if st, _ := s.get([]byte(t.Trial)); int(st.Last) <= t.Attempt {
				st.Last, st.Damaged = int32(t.Attempt), true
				s.set([]byte(t.Trial), st)
			}
		}
	}
}
