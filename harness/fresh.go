package harness

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"

	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// Fresh makes the sandbox of a trial's task as the trial's agent finds it in its first stage, and
// calls use with it. Nothing is recorded, and nothing is left afterwards.
func Fresh(ctx context.Context, cfg Config, job Job, use func(ctx context.Context, sb sandbox.Sandbox) error) (err error) {
	cfg.Blobs = noBlobs{}
	r, err := newRunner(cfg, noJournal{})
	if err != nil {
		return err
	}
	a := r.attempt(&job)
	a.regrading = &Regrading{} // it writes no entries
	a.seed = seed(a.Seed, job.Trial, job.Attempt)
	a.log = newLog(a)
	defer func() {
		if err != nil {
			err = errors.New(a.Mask.String(err.Error()))
		}
	}()
	ctx, done := a.live(ctx)
	defer done()
	if a.task, err = a.read(ctx); err != nil {
		return err
	}
	if a.needs, err = a.bench.Needs(a.task, a.bench.Options); err != nil {
		return err
	}
	if a.needs.Skip != "" {
		return &errSkip{"needs", a.needs.Skip, ""}
	}
	a.needs.Grader, a.needs.GradeLive = nil, false
	if err := a.images(ctx, "agent", a.needs.Agent); err != nil {
		return err
	}
	var held undo
	defer held.all()
	h := &host{a: a, role: "shell"}
	ep, err := a.enter(ctx, h, &held)
	if err != nil {
		return err
	}
	var sb sandbox.Sandbox
	err = a.phase(ctx, "setup", max(a.Phases.Start, a.needs.Setup), func(ctx context.Context) error {
		if _, err := ep.Next(ctx, nil); err != nil {
			return err
		}
		m, ok := ep.(benchmarks.Machiner)
		if !ok {
			return fmt.Errorf("the task has no sandbox")
		}
		var err error
		sb, err = m.Machine(ctx)
		return err
	})
	if err != nil {
		return err
	}
	return use(ctx, sb)
}

// noBlobs keeps nothing: it is for goals with pictures, which nobody reads.
type noBlobs struct{}

func (noBlobs) Put(_ context.Context, r io.Reader) (string, int64, error) {
	h := sha256.New()
	n, err := io.Copy(h, r)
	return hex.EncodeToString(h.Sum(nil)), n, err
}

func (noBlobs) Open(context.Context, string) (io.ReadCloser, error) { return nil, fs.ErrNotExist }
func (noBlobs) Sync(context.Context) error                          { return nil }

// noJournal keeps nothing.
type noJournal struct{}

func (noJournal) Append(context.Context, record.Entry) error { return nil }
func (noJournal) Sync(context.Context) error                 { return nil }
func (noJournal) Attempt(context.Context, string, int) iter.Seq2[record.Entry, error] {
	return func(func(record.Entry, error) bool) {}
}
