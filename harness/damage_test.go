package harness_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/harness"
	"github.com/evalrun/evalrun/harness/blob"
	"github.com/evalrun/evalrun/harness/plan"
	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// A filingEpisode stores a file as evidence.
type filingEpisode struct{ *toyEpisode }

func (e *filingEpisode) Collect(ctx context.Context, ans agent.Answer) (benchmarks.Evidence, error) {
	ev, err := e.toyEpisode.Collect(ctx, ans)
	if err != nil {
		return ev, err
	}
	b, err := e.host.Log().PutBlob(ctx, "text/plain", strings.NewReader("the right content"))
	ev.Files = map[string]event.Blob{"out.txt": b}
	return ev, err
}

// A damaged or missing blob makes a grading fail with a storage error that names the file, even if
// the grader ignores the read error.
func TestDamagedEvidence(t *testing.T)       { testDamagedEvidence(t, false) }
func TestDamagedEvidenceInPart(t *testing.T) { testDamagedEvidence(t, true) }

func testDamagedEvidence(t *testing.T, parses bool) {
	for what, spoil := range map[string]func(name string){
		"flipped": func(name string) { os.WriteFile(name, []byte("the wrong content"), 0o644) },
		"mangled": func(name string) { os.WriteFile(name, []byte("THE right content"), 0o644) },
		"cut":     func(name string) { os.Truncate(name, 3) },
		"emptied": func(name string) { os.Truncate(name, 0) },
		"deleted": func(name string) { os.Remove(name) },
	} {
		b := newBed(t, &toy{tasks: 1, wrap: func(e benchmarks.Episode) benchmarks.Episode {
			return &filingEpisode{e.(*toyEpisode)}
		}}, says("right", 1))
		dir := t.TempDir()
		store, err := blob.Open(dir, blob.Options{})
		if err != nil {
			t.Fatal(err)
		}
		b.cfg.Blobs = store
		b.run(t, t.Context())
		if v := b.verdicts(t)["arm0/t0"]; v.Status != record.Scored || *v.Reward != 1 {
			t.Fatalf("%+v", v)
		}
		names, _ := filepath.Glob(filepath.Join(dir, "??", "*"))
		if len(names) != 1 {
			t.Fatalf("blobs: %q", names)
		}
		spoil(names[0])
		// A grader that counts unreadable files as empty.
		var h benchmarks.Host
		b.toy.hosts = func(lent benchmarks.Host) { h = lent }
		b.toy.grade = func(ctx context.Context, ev benchmarks.Evidence,
			_ benchmarks.Episode) (benchmarks.Result, error) {
			v := 0.0
			if r, err := h.Log().OpenBlob(ctx, ev.Files["out.txt"]); err == nil {
				defer r.Close()
				if parses { // the grader gives up on content that it cannot parse
					head := make([]byte, 5)
					if _, err := io.ReadFull(r, head); err == nil && string(head) != "the w" {
						return benchmarks.Result{}, &sandbox.Error{Op: "put", Err: errors.New("not an archive")}
					}
					return benchmarks.Result{Scores: []record.Score{{Name: "toy", Primary: true, Value: &v}}}, nil
				}
				if text, _ := io.ReadAll(r); bytes.Equal(text, []byte("the right content")) {
					v = 1
				}
			}
			return benchmarks.Result{Scores: []record.Score{{Name: "toy", Primary: true, Value: &v}}}, nil
		}
		past := b.past()
		jobs := func(yield func(harness.Claimed) bool) {
			for j := range plan.Jobs(b.plan, nil, nil) {
				j.Evidence, j.Attempt, j.Fence = past[j.Trial].Evidence, 1, 1
				yield(harness.Claimed{Job: j})
			}
		}
		var lost []error
		if _, err := harness.Regrade(t.Context(), b.cfg, harness.Regrading{Why: "again"}, jobs, b.j,
			func(r harness.Regraded) {
				lost = append(lost, r.Lost)
			}); err != nil || len(lost) != 1 {
			t.Errorf("%s: %v, %d reports", what, err, len(lost))
			continue
		}
		if err := lost[0]; err == nil || !strings.Contains(err.Error(), names[0]) ||
			!errors.Is(err, record.ErrDamaged) && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v, want an error that names %s", what, err, names[0])
		}
		if len(b.amends(t)) > 0 {
			a, _ := json.Marshal(b.amends(t))
			t.Errorf("%s: amended: %s", what, a)
		}
	}
}
