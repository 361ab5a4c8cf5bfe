package tape

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/model"
	"github.com/evalrun/evalrun/internal/fsutil"
)

// A Recorder writes a tape. It is safe for concurrent use: each line is written by one write.
type Recorder struct {
	mu  sync.Mutex
	f   *os.File
	err error // first failure; later replies are refused, because a tape with gaps misleads
}

// Create opens a tape for appending, and creates it if it does not exist. It removes a torn last
// line left by a crash. A tape has one recorder at a time: Create fails while another one is open,
// in this or another process.
func Create(path string) (*Recorder, error) {
	f, err := fsutil.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("tape: %w", err)
	}
	switch err = fsutil.Lock(f); {
	case errors.Is(err, fsutil.ErrLocked):
		err = errors.New("it is being recorded by another process")
	case err == nil, errors.Is(err, errors.ErrUnsupported): // a file system without locks
		err = cutTorn(f)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("tape %s: %w", path, err)
	}
	return &Recorder{f: f}, nil
}

// cutTorn removes everything after the last line break.
func cutTorn(f *os.File) error {
	st, err := f.Stat()
	if err != nil {
		return err
	}
	end, err := wholeLines(f, st.Size())
	if err != nil || end == st.Size() {
		return err
	}
	return f.Truncate(end)
}

// wholeLines returns the offset after the last line break before end.
func wholeLines(f *os.File, end int64) (int64, error) {
	buf := make([]byte, 64<<10)
	for end > 0 {
		n := min(end, int64(len(buf)))
		if _, err := f.ReadAt(buf[:n], end-n); err != nil {
			return 0, err
		}
		if i := bytes.LastIndexByte(buf[:n], '\n'); i >= 0 {
			return end - n + int64(i) + 1, nil
		}
		end -= n
	}
	return 0, nil
}

// Close syncs the tape and closes it.
func (r *Recorder) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.f == nil {
		return nil
	}
	err := errors.Join(r.err, r.f.Sync(), r.f.Close())
	r.f = nil
	if err != nil {
		return fmt.Errorf("tape: %w", err)
	}
	return nil
}

// Wrap records every reply of next's clients before it is returned. Failed calls are not recorded.
// params are the parameters that next uses if a request leaves them unset.
func (r *Recorder) Wrap(next model.Factory, params model.Params) model.Factory {
	return func(b model.Binding) (model.Client, error) {
		c, err := next(b)
		if err != nil {
			return nil, err
		}
		return &recording{r: r, next: c, b: b, n: b.Counter(), params: params}, nil
	}
}

type recording struct {
	r      *Recorder
	next   model.Client
	b      model.Binding
	n      func() int
	params model.Params
}

func (c *recording) Info() model.Info { return c.next.Info() }

func (c *recording) Generate(ctx context.Context, req *model.Request) (*model.Response, error) {
	n := c.n()
	params, err := sampling(req.Params.Over(c.params))
	if err != nil {
		return nil, &model.Error{Class: model.Invalid, Err: fmt.Errorf("sampling parameters: %w", err)}
	}
	resp, err := c.next.Generate(ctx, req)
	if err != nil {
		return nil, err
	}
	l := line{
		V: version, key: keyOf(c.b, c.next.Info().Name, n), Attempt: c.b.Attempt, Arm: c.b.Arm, Request: req.Hash(),
		Params: json.RawMessage(params),
		Reply: event.Reply{
			ID: resp.ID, Role: c.b.Role, Model: resp.Model, Parts: resp.Parts, Reasoning: resp.Reasoning,
			Calls: resp.Calls,
			Stop:  resp.Stop, Usage: resp.Usage, Opaque: resp.Opaque,
		},
	}
	if err := c.r.write(l); err != nil {
		return nil, &model.Error{Class: model.Invalid, Err: fmt.Errorf("the reply could not be taped: %w", err)}
	}
	return resp, nil
}

func (r *Recorder) write(l line) error {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(l); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.f == nil {
		return errors.New("the tape is closed")
	}
	if r.err == nil {
		_, r.err = r.f.Write(buf.Bytes())
	}
	return r.err
}
