package launch

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/harness"
	"github.com/evalrun/evalrun/harness/journal"
	"github.com/evalrun/evalrun/harness/plan"
	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/internal/fsutil"
)

// waiting returns the trials of the run in dir whose second opinions are pending; and those that are
// not known, if nothing has graded them since, because what was missing may be known now.
func waiting(dir string) map[string]*decision {
	if !anyPending(dir) {
		return nil
	}
	of := decisions(dir)
	maps.DeleteFunc(of, func(_ string, d *decision) bool {
		g := d.grade.Confirmation
		return d.evidence == 0 || g == nil ||
			g.State != record.Pending && (g.State != record.Unknown || !d.grade.Same(d.own))
	})
	return of
}

// confirm asks for the second opinions that grades of the run in dir wait for, but for those of the
// tasks in left. sum is what the run has spent so far.
func (r *Ready) confirm(ctx context.Context, dir string, left map[string]bool, cfg harness.Config,
	sum *harness.Summary, j record.Journal, c Control) error {
	if !slices.ContainsFunc(cfg.Benchmarks, func(b harness.Bench) bool {
		_, ok := b.Benchmark.(benchmarks.Confirmer)
		return ok
	}) {
		return nil
	}
	of := waiting(dir)
	if len(of) == 0 {
		return nil
	}
	say := func(format string, args ...any) {
		if c.Observe != nil {
			c.Observe(harness.Progress{Kind: "note", Text: fmt.Sprintf(format, args...)})
		}
	}
	open := 0
	for _, d := range of {
		if d.grade.Confirmation.State == record.Pending {
			open++
		}
	}
	if open > 0 {
		say("%s now, in fresh machines", counted(open, "second opinion"))
	}
	if n := len(of) - open; n > 0 {
		say("%s once more, as they were not known", counted(n, "second opinion"))
	}
	refs, err := openReferences()
	if err != nil {
		return err
	}
	refs.checks = c.Checks
	cfg.References = refs
	cfg.Whole.SpentCost, cfg.Whole.SpentEstimated, cfg.Whole.SpentTokens = sum.Cost, sum.Estimated, sum.Tokens
	jobs := map[string]harness.Job{}
	states, failed := map[string]int{}, ""
	for job := range r.variants(plan.Jobs(r.Plan, nil, nil)) {
		switch {
		case of[job.Trial] == nil:
		case left[job.Task.Digest]:
			failed = harness.TaskChanged
			states[of[job.Trial].grade.Confirmation.State]++
			delete(of, job.Trial)
		default:
			jobs[job.Trial] = job
		}
	}
	rest := maps.Clone(of)
	now, err := r.oraclesFirst(&cfg, r.gradings(dir, of, jobs), func(claims iter.Seq[harness.Claimed]) (
		harness.Summary, error) {
		return harness.Confirm(ctx, cfg, claims, j, func(x harness.Confirmed) {
			delete(rest, x.Job.Trial)
			if x.Confirmation == nil {
				was := of[x.Job.Trial].grade.Confirmation.State
				states[was]++
				if x.Fault != nil && was == record.Pending {
					failed = x.Fault.Text
				}
				return
			}
			states[x.Confirmation.State]++
		})
	})
	if err != nil {
		return err
	}
	sum.Cost, sum.Estimated, sum.Tokens = now.Cost, now.Estimated, now.Tokens
	if now.Reason != "" {
		sum.Reason, sum.Why = now.Reason, now.Why
	}
	for _, d := range rest {
		states[d.grade.Confirmation.State]++
	}
	if len(rest) > 0 && sum.Reason == "done" {
		sum.Reason = "stopped"
	}
	text := fmt.Sprintf("second opinions: %d confirmed, %d unconfirmed", states[record.Confirmed],
		states[record.Unconfirmed])
	for _, x := range []struct{ state, name string }{{record.Unknown, "not known"},
		{record.Inapplicable, "not applicable"}} {
		if n := states[x.state]; n > 0 {
			text += fmt.Sprintf(", %d %s", n, x.name)
		}
	}
	switch n := states[record.Pending]; {
	case n == 0:
	case failed == harness.TaskChanged:
		text += fmt.Sprintf(", %d pending: %s; put it back, then: evalrun resume", n, failed)
	default:
		text += fmt.Sprintf(", %d pending (evalrun resume asks again)", n)
		if failed != "" {
			text += ": " + failed + c.Checks.origin()
		}
	}
	say("%s", text)
	if text := c.Checks.missing(); text != "" {
		say("%s", text)
	}
	return nil
}

// oraclesFirst calls f for the claims of oracles, by which others are judged, and then for those of
// others. cfg is told what was spent.
func (r *Ready) oraclesFirst(cfg *harness.Config, all iter.Seq[harness.Claimed],
	f func(iter.Seq[harness.Claimed]) (harness.Summary, error)) (sum harness.Summary, err error) {
	for _, oracle := range []bool{true, false} {
		sum, err = f(func(yield func(harness.Claimed) bool) {
			for c := range all {
				if (r.Plan.Arms[c.Arm].Agent == "oracle") == oracle && !yield(c) {
					return
				}
			}
		})
		if err != nil || sum.Reason != "" {
			break
		}
		cfg.Whole.SpentCost, cfg.Whole.SpentEstimated, cfg.Whole.SpentTokens = sum.Cost, sum.Estimated, sum.Tokens
	}
	return sum, err
}

// counted returns "1 second opinion" or "2 second opinions".
func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// anyPending reports whether a grade in the journal was ever pending, by a search that decodes
// nothing.
func anyPending(dir string) bool {
	for e, err := range journal.Control(dir) {
		if err == nil && e.Kind == record.KindVerdict &&
			bytes.Contains(e.Data, []byte(`"confirmation":{"state":"`+record.Pending+`"`)) {
			return true
		}
	}
	return false
}

// references keeps references of second opinions in a folder: one file of JSON for each key. A
// damaged file is made again.
type references struct {
	dir    string
	checks *Checks // nil: there is no file of checks

	mu    sync.Mutex
	locks map[string]*sync.Mutex
}

func openReferences() (*references, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, fmt.Errorf("second opinions need a folder for references: %w", err)
	}
	return &references{dir: filepath.Join(cache, "evalrun", "references")}, nil
}

// Get implements [harness.References].
func (r *references) Get(ctx context.Context, key string, make func(context.Context) ([]byte, error)) ([]byte, error) {
	sum := sha256.Sum256([]byte(key))
	name := hex.EncodeToString(sum[:16])
	r.mu.Lock()
	if r.locks == nil {
		r.locks = map[string]*sync.Mutex{}
	}
	lock := r.locks[name]
	if lock == nil {
		lock = new(sync.Mutex)
		r.locks[name] = lock
	}
	r.mu.Unlock()
	lock.Lock()
	defer lock.Unlock()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if make == nil {
		r.checks.look(name)
	}
	file := filepath.Join(r.dir, name)
	b, err := os.ReadFile(file)
	switch {
	case err == nil && json.Valid(b):
		r.checks.note(name, b)
		return b, nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	if b = r.checks.get(name); b != nil || make == nil {
		return b, nil
	}
	if b, err = make(ctx); err != nil {
		return nil, err
	}
	r.checks.note(name, b)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return nil, err
	}
	return b, fsutil.WriteFile(file, b)
}
