package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/scripts/leftovers"
)

// verdicts maps trials to their status, end and reward.
type verdicts map[string]string

// scan reads the final verdict of each trial from a run's control journal, and checks that nothing
// follows it.
func scan(run string) (verdicts, error) {
	f, err := os.Open(filepath.Join(run, "journal", "control.jsonl"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	got := verdicts{}
	r := bufio.NewReaderSize(f, 1<<20)
	last := int64(0)
	for n := 1; ; n++ {
		line, err := r.ReadBytes('\n')
		if err != nil { // an incomplete last line is repaired by resume
			return got, nil
		}
		var l struct {
			E record.Entry `json:"e"`
		}
		if err := json.Unmarshal(line, &l); err != nil {
			return got, fmt.Errorf("%s:%d: %w: %.200s", f.Name(), n, err, line)
		}
		e := l.E
		if e.Seq <= last {
			return got, fmt.Errorf("%s:%d: seq %d after %d", f.Name(), n, e.Seq, last)
		}
		last = e.Seq
		if e.Trial == "" {
			continue
		}
		if was, ok := got[e.Trial]; ok && e.Kind != record.KindAmend {
			return got, fmt.Errorf("%s:%d: an entry %q of trial %s, attempt %d, after its final verdict (%s)", f.Name(),
				n, e.Kind, e.Trial, e.Attempt, was)
		}
		if e.Kind == record.KindVerdict {
			var v record.Verdict
			if err := json.Unmarshal(e.Data, &v); err != nil {
				return got, fmt.Errorf("%s:%d: %w", f.Name(), n, err)
			}
			if v.Final {
				reward := "none"
				if v.Reward != nil {
					reward = strconv.FormatFloat(*v.Reward, 'g', -1, 64)
				}
				got[e.Trial] = fmt.Sprintf("%s %s %s", v.Status, v.End, reward)
			}
		}
	}
}

func same(want, got verdicts) error {
	var diffs []string
	for t, w := range want {
		if g, ok := got[t]; !ok || g != w {
			diffs = append(diffs, fmt.Sprintf("trial %s: %q, undisturbed %q", t, g, w))
		}
	}
	for t := range got {
		if _, ok := want[t]; !ok {
			diffs = append(diffs, fmt.Sprintf("trial %s: not in the undisturbed run", t))
		}
	}
	if diffs == nil {
		return nil
	}
	slices.Sort(diffs)
	if len(diffs) > 10 {
		diffs = append(diffs[:10], fmt.Sprintf("… and %d more", len(diffs)-10))
	}
	return errors.New(strings.Join(diffs, "\n"))
}

// clean waits until nothing is left over that did not exist before.
func clean(tmp string, before leftovers.Set) error {
	if left := leftovers.After(tmp, before, 20*time.Second); len(left) > 0 {
		return fmt.Errorf("left over:\n  %s", strings.Join(left, "\n  "))
	}
	return nil
}
