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

// A TrialState is the current state of a trial.
type TrialState struct {
	ledger.Trial
	// Damaged means that a part of the newest attempt's record was damaged and quarantined, so that
	// the trial needs another attempt, whatever its verdict.
	Damaged bool
}

// A State is what a resume needs to know, read from control.jsonl alone. It takes about 60 bytes
// per trial. It is a snapshot and must not be changed while it is read.
type State struct {
	dir      string
	hex      map[[10]byte]TrialState // trials by ID; packing the IDs saves three quarters of the memory
	other    map[string]TrialState   // trials whose ID is not 20 hexadecimal digits
	evidence map[string][]int64      // offsets of evidence in control.jsonl, for trials that are not scored
	began    map[string]int64        // number of the entry that started a trial's open attempt
	spans    map[string][]admit.Span // ended attempts of trials that are not closed
	fence    int64
	seq      int64
	retries  int
}

func newState(dir string) *State {
	return &State{dir: dir, hex: map[[10]byte]TrialState{}, other: map[string]TrialState{},
		evidence: map[string][]int64{},
		began:    map[string]int64{}, spans: map[string][]admit.Span{}}
}

// ReadState reads the state of the journal in dir. If another process is writing, the state is that
// of a recent moment. Unparsable lines are skipped, because Open reports them. If there is no
// journal, the state is empty.
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

// Trial returns the state of a trial. ok is false if nothing is known about it.
func (s *State) Trial(id string) (TrialState, bool) {
	return s.get([]byte(id))
}

// All yields every trial that was started, in no particular order.
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

// Len returns the number of trials that were started.
func (s *State) Len() int { return len(s.hex) + len(s.other) }

// Fence returns the highest fence of all trials. New leases must use higher ones.
func (s *State) Fence() int64 { return s.fence }

// Retries returns the number of attempts that were retries of a failed one, which count against the
// run's retry budget.
func (s *State) Retries() int { return s.retries }

// Seq returns the number of the last entry in the state.
func (s *State) Seq() int64 { return s.seq }

// Evidence reads the evidence entries of TrialState.Evidence, in the order of the stages.
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

// apply adds one line of control.jsonl, which begins at off.
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

// ledger converts r for the fold of entries.
func (r *raw) ledger() ledger.Line {
	return ledger.Line{Attempt: r.attempt, Fence: r.fence, Kind: kinds[string(r.kind)], Data: r.data}
}

// kinds avoids allocating a string for each line.
var kinds = map[string]string{
	record.KindAttempt: record.KindAttempt, record.KindStage: record.KindStage,
	record.KindEvidence: record.KindEvidence,
	record.KindResult:   record.KindResult, record.KindVerdict: record.KindVerdict, record.KindAmend: record.KindAmend,
}

// damage marks the trials whose newest attempt lost entries.
func (s *State) damage(ds []Damage) {
	for _, d := range ds {
		for _, t := range d.Touched {
			// For an unknown trial, all its control entries may be lost, but not its events. Its
			// attempt number is used up.
			if st, _ := s.get([]byte(t.Trial)); int(st.Last) <= t.Attempt {
				st.Last, st.Damaged = int32(t.Attempt), true
				s.set([]byte(t.Trial), st)
			}
		}
	}
}
