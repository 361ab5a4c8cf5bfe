package journal

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"

	"github.com/evalrun/evalrun/harness/record"
)

// A TrialState is where a trial stands.
type TrialState struct {
	Decided bool          // the newest attempt has a final verdict
	Status  record.Status // of the newest verdict; "" before the first
	End     record.End    // of the newest verdict
	Last    int           // number of the newest attempt; 0: none yet
	Open    int           // the attempt that began and has no verdict; 0: none
	Fence   int64         // the newest seen
	// Evidence is the attempt whose evidence can be graded (again): the open one, or one whose trial was not scored.
	// 0: none. State.Evidence reads it.
	Evidence int
	// Damaged says that a part of the newest attempt's record was found damaged and was quarantined, so that the trial has to be
	// attempted once more, whatever its verdict.
	Damaged bool
}

// A State is what a resume needs to know, read from control.jsonl alone. It takes about 60 bytes a trial, and is not safe
// for changes while it is read: it is a picture of the moment.
type State struct {
	dir      string
	hex      map[[10]byte]standing // the trials, by ID; this form is a quarter of the size
	other    map[string]standing   // IDs that are not 20 hexadecimal digits
	evidence map[string][]int64    // where in control.jsonl, of trials that are not scored
	fence    int64
	seq      int64
}

type standing struct {
	fence                int64
	last, open, evidence int32
	status, end          uint8
	decided, damaged     bool
}

var (
	statuses = []record.Status{"", record.Scored, record.Infra, record.Provider, record.Grader, record.Canceled, record.Skipped}
	ends     = []record.End{"", record.Answered, record.GaveUp, record.Limit, record.Broke}
)

func newState(dir string) *State {
	return &State{dir: dir, hex: map[[10]byte]standing{}, other: map[string]standing{}, evidence: map[string][]int64{}}
}

// ReadState reads the state of the journal in dir. Another process may be writing: it is then a moment of its. Lines that cannot
// be understood are passed over, as Open will name them. No journal at all is an empty state.
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
	for {
		line, off, err := in.next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("journal: %w", err)
		}
		var r raw
		if r.parse(line) != nil {
			continue
		}
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
	st, ok := s.get([]byte(id))
	return st.public(), ok
}

// All yields every trial that was begun, in no order.
func (s *State) All() iter.Seq2[string, TrialState] {
	return func(yield func(string, TrialState) bool) {
		for k, st := range s.hex {
			if !yield(hex.EncodeToString(k[:]), st.public()) {
				return
			}
		}
		for k, st := range s.other {
			if !yield(k, st.public()) {
				return
			}
		}
	}
}

// Len is the number of trials that were begun.
func (s *State) Len() int { return len(s.hex) + len(s.other) }

// Fence is the newest fence of all trials; leases handed out from now on begin above it.
func (s *State) Fence() int64 { return s.fence }

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
			return nil, fmt.Errorf("journal: evidence of trial %s is no longer at byte %d of %s: read the state anew", trial, off, controlFile)
		}
		out = append(out, r.toEntry(names{}))
	}
	return out, nil
}

func (st standing) public() TrialState {
	return TrialState{
		Decided: st.decided, Status: statuses[st.status], End: ends[st.end], Last: int(st.last), Open: int(st.open),
		Fence: st.fence, Evidence: int(st.evidence), Damaged: st.damaged,
	}
}

func (s *State) get(id []byte) (standing, bool) {
	if k, ok := hexKey(id); ok {
		st, ok := s.hex[k]
		return st, ok
	}
	st, ok := s.other[string(id)]
	return st, ok
}

func (s *State) set(id []byte, st standing) {
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
	st.fence = max(st.fence, r.fence)
	st.last = max(st.last, int32(r.attempt)) // also where the entry that began it was lost
	switch string(r.kind) {
	case record.KindAttempt:
		st.open = int32(r.attempt)
		st.decided, st.damaged = false, false
	case record.KindEvidence:
		id := string(r.trial)
		if st.evidence != int32(r.attempt) {
			delete(s.evidence, id)
		}
		st.evidence = int32(r.attempt)
		s.evidence[id] = append(s.evidence[id], off)
	case record.KindVerdict:
		v := readVerdict(r.data)
		if st.open == int32(r.attempt) {
			st.open = 0
		}
		st.decided = v.Final
		st.status = uint8(max(0, slices.Index(statuses, v.Status)))
		st.end = uint8(max(0, slices.Index(ends, v.End)))
		if v.Final && v.Status == record.Scored {
			delete(s.evidence, string(r.trial))
			st.evidence = 0
		}
	}
	if string(r.kind) == record.KindAmend && bytes.Contains(r.data, []byte(`"status"`)) {
		if v := slowVerdict(r.data); v.Status != "" && st.decided {
			st.status, st.end = uint8(max(0, slices.Index(statuses, v.Status))), uint8(max(0, slices.Index(ends, v.End)))
		}
	}
	s.set(r.trial, st)
}

// damage marks the trials whose newest attempt was touched.
func (s *State) damage(ds []Damage) {
	for _, d := range ds {
		for _, t := range d.Touched {
			// Of a trial that is not known all of control.jsonl may be lost, but not its events: its number is used up.
			if st, _ := s.get([]byte(t.Trial)); int(st.last) <= t.Attempt {
				st.last, st.damaged = int32(t.Attempt), true
				s.set([]byte(t.Trial), st)
			}
		}
	}
}

// A verdict is what the journal itself looks at of a record.Verdict.
type verdict struct {
	Final  bool          `json:"final"`
	Status record.Status `json:"status"`
	End    record.End    `json:"end"`
}

// cutOff says that an attempt ended for no reason of its own: what it had may be taken over.
func (v verdict) cutOff() bool { return !v.Final && v.Status == record.Canceled }

// readVerdict tries the form in which a record.Verdict is encoded before it asks encoding/json: a resume reads 100,000.
func readVerdict(data []byte) (v verdict) {
	s, ok := bytes.CutPrefix(data, []byte(`{"final":true,"status":"`))
	if ok {
		v.Final = true
	} else if s, ok = bytes.CutPrefix(data, []byte(`{"final":false,"status":"`)); !ok {
		return slowVerdict(data)
	}
	status, s, ok := cutString(s)
	if !ok {
		return slowVerdict(data)
	}
	for _, x := range statuses {
		if string(status) == string(x) {
			v.Status = x
		}
	}
	if s, ok = bytes.CutPrefix(s, []byte(`,"end":"`)); ok {
		end, _, ok := cutString(s)
		if !ok {
			return slowVerdict(data)
		}
		for _, x := range ends {
			if string(end) == string(x) {
				v.End = x
			}
		}
	} else if bytes.Contains(data, []byte(`"end"`)) { // in another order, or inside a text
		return slowVerdict(data)
	}
	return v
}

func slowVerdict(data []byte) (v verdict) {
	_ = json.Unmarshal(data, &v) // what does not fit stays empty: not final
	return v
}
