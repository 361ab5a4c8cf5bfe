package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/harness/record"
)

// maxText is the longest text of a grader or an error in the record, in bytes.
const maxText = 16 << 10

// beginStage records a stage. A long goal is stored in a blob, which trials with the same goal
// share.
func (a *attempt) beginStage(ctx context.Context, stage *benchmarks.Stage, i int) error {
	goal := a.Mask.String(stage.Goal.Text())
	st := record.Stage{Index: i, Name: cut(stage.Name, maxText), Goal: cut(goal, record.MaxGoal), Events: a.log.count()}
	if len(goal) > record.MaxGoal && a.Blobs != nil {
		b, err := a.log.PutBlob(ctx, "text/plain; charset=utf-8", bytes.NewReader([]byte(goal)))
		if err != nil {
			return err
		}
		st.GoalBlob = b.SHA256
	}
	return a.write(ctx, record.KindStage, st)
}

// keepEvidence returns the encoded evidence or, if it is large, the digest of the blob that holds
// it.
func (a *attempt) keepEvidence(ctx context.Context, ev benchmarks.Evidence) (json.RawMessage, string, error) {
	data, err := encode(ev)
	if err != nil {
		return nil, "", err
	}
	data = a.Mask.JSON(data)
	if len(data) <= record.MaxEvidence || a.Blobs == nil {
		return data, "", nil
	}
	b, err := a.log.PutBlob(ctx, "application/json", bytes.NewReader(data))
	return nil, b.SHA256, err
}

// evidence reads what keepEvidence stored.
func (a *attempt) evidence(ctx context.Context, rec *record.Evidence) (ev benchmarks.Evidence, err error) {
	data := rec.Data
	if rec.Blob != "" {
		if data, err = a.readBlob(ctx, rec.Blob); err != nil {
			return ev, err
		}
	}
	if err := json.Unmarshal(data, &ev); err != nil {
		return ev, fmt.Errorf("reading the evidence: %w", err)
	}
	return ev, nil
}

// readBlob reads a blob of the record. A missing or damaged blob is a storage failure.
func (a *attempt) readBlob(ctx context.Context, sum string) ([]byte, error) {
	if a.Blobs == nil {
		return nil, &errStorage{fmt.Errorf("blob %s: %w", sum, fs.ErrNotExist)}
	}
	r, err := a.log.OpenBlob(ctx, event.Blob{SHA256: sum})
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: %w", record.ErrMissing, err)
	}
	if err != nil {
		return nil, &errStorage{err}
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, &errStorage{err}
	}
	return data, nil
}

// Limits on what a grader may return.
const (
	maxFlags = 100
	// maxResult is the approximate size limit of one result entry, in bytes.
	maxResult = 256 << 10
)

// maxDepth is the deepest nesting allowed in JSON from outside that is embedded in the record,
// because JSON readers limit the depth.
const maxDepth = 1000

// depth returns the nesting depth of a valid JSON text.
func depth(text []byte) (most int) {
	in, now := false, 0
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case in && c == '\\':
			i++
		case c == '"':
			in = !in
		case in:
		case c == '[' || c == '{':
			now++
			most = max(most, now)
		case c == ']' || c == '}':
			now--
		}
	}
	return most
}

// tidy masks secrets in a result's texts and shortens long ones, without changing the grader's
// copy.
func (a *attempt) tidy(res *benchmarks.Result) {
	res.Scores, res.Tests, res.Flags = slices.Clone(res.Scores), slices.Clone(res.Tests), slices.Clone(res.Flags)
	text := func(s *string) { *s = cut(a.Mask.String(*s), maxText) }
	for i := range res.Scores {
		s := &res.Scores[i]
		text(&s.Name)
		text(&s.Text)
		text(&s.Why)
	}
	for i := range res.Tests {
		t := &res.Tests[i]
		text(&t.Name)
		text(&t.Message)
	}
	for i := range res.Flags {
		text(&res.Flags[i])
	}
}

// writeResult records a stage's result, split into as many entries as its tests need.
func (a *attempt) writeResult(ctx context.Context, rec record.Result) error {
	size, from := 0, 0
	for i, t := range rec.Tests {
		size += len(t.Name) + len(t.Status) + len(t.Message) + 40
		if size > maxResult && i+1 < len(rec.Tests) {
			part := record.Result{Stage: rec.Stage, Tests: rec.Tests[from : i+1]}
			if err := a.write(ctx, record.KindResult, part); err != nil {
				return err
			}
			size, from = 0, i+1
		}
	}
	rec.Tests = rec.Tests[from:]
	return a.write(ctx, record.KindResult, rec)
}
