package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/model"
	"github.com/evalrun/evalrun/harness/record"
)

// A recorder is the outermost layer of a client: it keeps the limits, appends the reply to the log
// and every try to the journal, and makes a provider's failure stick. There is one for each actor
// and role of an attempt, so that its calls are numbered through all stages, and it makes one call
// at a time.
type recorder struct {
	a     *attempt
	next  model.Client
	actor string
	role  string
	other bool // a model of the benchmark's: other account, no limits of the arm, no log of the agent's

	calling chan struct{} // holds one token while a call is made

	mu    sync.Mutex
	n     int         // of the call that is being made, or of the next one
	tries []model.Try // of that call; those that failed are in the journal
	jerr  error       // a failure of the journal
	out   *flight     // of the call that is out; nil: none, or no clock runs
}

// A roleKey names a recorder.
type roleKey struct {
	actor, role string
	other       bool
}

// client is the client of an actor and role over a factory, the same whenever it is asked for.
func (a *attempt) client(f model.Factory, actor, role string, other bool) (model.Client, error) {
	k := roleKey{actor, role, other}
	a.mu.Lock()
	rec := a.clients[k]
	a.mu.Unlock()
	if rec != nil {
		return rec, nil
	}
	rec, err := a.bind(f, k)
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if was := a.clients[k]; was != nil {
		return was, nil
	}
	if a.clients == nil {
		a.clients = map[roleKey]*recorder{}
	}
	a.clients[k] = rec
	return rec, nil
}

func (a *attempt) bind(f model.Factory, k roleKey) (*recorder, error) {
	actor, role := k.actor, k.role
	rec := &recorder{a: a, actor: actor, role: role, other: k.other, calling: make(chan struct{}, 1)}
	b := model.Binding{
		Trial: a.job.Trial, Benchmark: a.job.Task.Benchmark, Task: a.job.Task.ID, Repeat: a.job.Repeat,
		Attempt: a.job.Attempt,
		Arm:     a.arm.Name, Actor: actor, Role: role, Seed: a.seed,
		Try: func(t model.Try) {
			rec.mu.Lock()
			rec.tries = append(rec.tries, t)
			n, out := rec.n, rec.out
			rec.mu.Unlock()
			if out != nil {
				out.tried(lost(t.Err))
			}
			if t.Err != nil {
				rec.failed(n, &t)
			}
		},
		Waiting: a.awaits(k.other),
		May: func() error {
			if err := a.may(); err != nil {
				return a.cutOff(err)
			}
			if k.other {
				return nil
			}
			if err := a.allow(); err != nil { // tries that failed may have used a limit up
				return rec.keepError(err)
			}
			return nil
		},
		N: func() int {
			rec.mu.Lock()
			defer rec.mu.Unlock()
			return rec.n
		},
		Blob: func(ctx context.Context, b event.Blob) (io.ReadCloser, error) { return a.log.OpenBlob(ctx, b) },
	}
	c, err := f(b)
	if err != nil {
		return nil, err
	}
	rec.next = c
	return rec, nil
}

func (r *recorder) Info() model.Info { return r.next.Info() }

func (r *recorder) Generate(ctx context.Context, req *model.Request) (*model.Response, error) {
	if !r.other {
		if err := r.a.env().check(); err != nil {
			return nil, err
		}
		if err := r.a.allow(); err != nil {
			return nil, r.a.env().keepError(err)
		}
	}
	select {
	case r.calling <- struct{}{}:
		defer func() { <-r.calling }()
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err := r.settle(ctx); err != nil {
		return nil, r.keepError(err)
	}
	if !r.other {
		defer r.a.calling()()
	}
	began := time.Now()
	resp, err := r.again(req), error(nil)
	if resp == nil {
		resp, err = r.generate(ctx, req)
	}
	r.mu.Lock()
	tries := r.tries
	r.tries = nil
	n := r.n
	r.n++
	r.mu.Unlock()

	var waited time.Duration
	for _, t := range tries {
		waited += t.Waited
	}
	if len(tries) == 0 && lost(err) {
		waited = time.Since(began)
	}
	r.a.times(func(t *record.Times) { t.Model += time.Since(began) - waited; t.Backoff += waited })

	keep := context.WithoutCancel(ctx)
	id := fmt.Sprintf("%s/%d", r.role, n)
	if r.actor != "" {
		id = r.actor + "/" + id
	}
	if err == nil && resp == nil {
		err = &model.Error{Class: model.Invalid, Err: errors.New("the client returned no reply")}
	}
	if err == nil {
		if rerr := r.reply(keep, id, resp); rerr != nil {
			return nil, r.keepError(rerr)
		}
	}
	if len(tries) == 0 { // a client without a retry wrapper reports nothing by itself
		t := model.Try{N: n, Try: 1, Model: r.next.Info().Name, Request: req.Hash(), Start: began,
			Latency: time.Since(began), Waited: waited, Err: err, Response: resp}
		if resp != nil {
			t.From = resp.From
		}
		tries = []model.Try{t}
		if err != nil {
			r.failed(n, &t)
		}
	}
	for i, t := range tries {
		if t.Err != nil {
			continue
		}
		last := ""
		if err == nil && i == len(tries)-1 {
			last = id
		}
		if jerr := r.journal(keep, n, t, last, record.Usage{}); jerr != nil {
			return nil, r.keepError(&errStorage{jerr})
		}
	}
	r.mu.Lock()
	jerr := r.jerr
	r.mu.Unlock()
	if jerr != nil {
		return nil, r.keepError(&errStorage{jerr})
	}
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if _, known := ours("agent", err); known {
			return nil, r.keepError(err)
		}
		return nil, err
	}
	resp.ID = id
	if err := r.a.paid(resp, r.other); err != nil {
		return nil, err
	}
	return resp, nil
}

// settle makes what the last call brought durable before the next one is paid for: a process that
// is killed then loses the calls in flight and no other.
func (r *recorder) settle(ctx context.Context) error {
	if !r.other {
		return r.a.log.settled(ctx)
	}
	r.mu.Lock()
	first := r.n == 0
	r.mu.Unlock()
	if first || r.a.regrading != nil {
		return nil
	}
	if err := r.a.sync(context.WithoutCancel(ctx)); err != nil {
		return &errStorage{err}
	}
	return nil
}

// again is the reply that an interrupted attempt paid for, if it was asked the same.
func (r *recorder) again(req *model.Request) *model.Response {
	if r.other || r.a.replay == nil {
		return nil
	}
	r.mu.Lock()
	n := r.n
	r.mu.Unlock()
	return r.a.replay.find(r.actor, r.role, n, req.Hash())
}

// lost reports whether the time of a try that ended with err is the service's and not the agent's.
func lost(err error) bool {
	var e *model.Error
	return errors.As(err, &e) && e.Provider()
}

// generate calls the client; a panic in it is ours.
func (r *recorder) generate(ctx context.Context, req *model.Request) (resp *model.Response, err error) {
	r.a.mu.Lock()
	clock := r.a.inPhase
	if clock == nil {
		clock = r.a.clock
	}
	r.a.mu.Unlock()
	if clock != nil {
		out := clock.call()
		r.mu.Lock()
		r.out = out
		r.mu.Unlock()
		defer func() {
			r.mu.Lock()
			told := len(r.tries) > 0
			r.mu.Unlock()
			if !told { // a client without a retry wrapper
				out.tried(lost(err))
			}
			out.land()
		}()
	}
	defer func() {
		if p := recover(); p != nil {
			resp, err = nil, &model.Error{Class: model.Invalid, Err: panicked(p)}
		}
	}()
	return r.next.Generate(ctx, req)
}

// failed counts and records a try that failed, before the next one is made: a process that is
// killed while a call is tried again has the tries before in its record.
func (r *recorder) failed(n int, t *model.Try) {
	u := r.a.charged(t, r.other)
	if err := r.journal(context.Background(), n, *t, "", u); err != nil {
		r.mu.Lock()
		r.jerr = errors.Join(r.jerr, err)
		r.mu.Unlock()
	}
}

func (r *recorder) keepError(err error) error {
	if r.other {
		return err
	}
	return r.a.env().keepError(err)
}

// reply appends the note that calls point into.
func (r *recorder) reply(ctx context.Context, id string, resp *model.Response) error {
	if r.other {
		return nil // what a grader is told is not in the log that an agent can read; the call's record has it
	}
	if depth(resp.Opaque) > maxDepth { // it could not be read again
		r.a.Slog.Warn("a part of a model's reply is nested too deep to be kept", "trial", r.a.job.Trial, "reply", id)
		resp.Opaque = nil
	}
	note := event.New(event.FromAgent, event.Reply{
		ID: id, Role: r.role, Model: resp.Model, Parts: resp.Parts, Reasoning: resp.Reasoning, Calls: resp.Calls,
		Stop:  resp.Stop,
		Usage: resp.Usage, Opaque: resp.Opaque,
	})
	note.Actor = r.actor
	_, err := r.a.log.Append(ctx, note)
	return err
}

func (r *recorder) journal(ctx context.Context, n int, t model.Try, reply string, took record.Usage) error {
	c := record.Call{
		Actor: r.actor, Role: r.role, Other: r.other, N: n, Try: t.Try, Model: r.a.Mask.String(t.Model),
		Request: t.Request, Reply: reply, From: t.From, Start: t.Start.UTC(),
		Latency: t.Latency, Waited: t.Waited, HTTP: t.HTTP, ID: r.a.Mask.String(t.ID), Usage: took,
	}
	if t.Err != nil {
		c.Error = r.a.Mask.String(t.Err.Error())
		var me *model.Error
		if errors.As(t.Err, &me) {
			c.Class = me.Class
		}
	}
	if resp := t.Response; resp != nil {
		c.Stop = r.a.Mask.String(resp.Stop)
		c.Usage = usage(resp)
		if err := r.raw(ctx, resp, &c); err != nil {
			return err
		}
	}
	return r.a.write(ctx, record.KindCall, c)
}

// raw keeps the provider's own words.
func (r *recorder) raw(ctx context.Context, resp *model.Response, c *record.Call) error {
	if raw := r.a.Mask.JSON(resp.Raw); len(raw) > 0 {
		if len(raw) <= event.MaxInline && json.Valid(raw) && depth(raw) <= maxDepth {
			c.Raw = bytes.TrimSpace(raw)
		} else {
			b, err := r.a.log.PutBlob(ctx, "application/json", bytes.NewReader(raw))
			if err != nil {
				return err
			}
			c.RawBlob = b.SHA256
		}
	}
	if r.a.KeepSent && len(resp.RawReq) > 0 {
		b, err := r.a.log.PutBlob(ctx, "application/json", bytes.NewReader(resp.RawReq))
		if err != nil {
			return err
		}
		c.Sent = b.SHA256
	}
	return nil
}

// A replay holds the replies that earlier attempts of a trial paid for.
type replay struct {
	replies map[replayKey]replayed
}

type replayKey struct {
	actor, role string
	n           int
}

type replayed struct {
	request string
	resp    model.Response
}

func (p *replay) find(actor, role string, n int, request string) *model.Response {
	got, ok := p.replies[replayKey{actor, role, n}]
	if !ok || got.request != request {
		return nil
	}
	resp := got.resp
	resp.From = "attempt"
	return &resp
}

// load adds the calls of one attempt that have a reply; attempts given first win.
func (p *replay) load(calls []paidCall) {
	for _, c := range calls {
		if c.note == nil || c.Error != "" {
			continue
		}
		k := replayKey{c.Actor, c.Role, c.N}
		if _, have := p.replies[k]; have {
			continue
		}
		p.replies[k] = replayed{request: c.Request, resp: model.Response{
			ID: c.ID, Model: c.note.Model, Parts: c.note.Parts, Reasoning: c.note.Reasoning, Calls: c.note.Calls,
			Stop:  c.note.Stop,
			Usage: c.note.Usage, Opaque: c.note.Opaque,
		}}
	}
}

func panicked(p any) error { return fmt.Errorf("panic: %s", strings.TrimSpace(fmt.Sprint(p))) }
