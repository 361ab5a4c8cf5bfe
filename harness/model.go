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

// A recorder is the outermost layer of a model client. It enforces limits, appends replies to the
// log and every try to the journal, and keeps a provider's failure as the env's failure. There is
// one for each actor and role of an attempt, which numbers its calls across all stages. It makes
// one call at a time.
type recorder struct {
	a     *attempt
	next  model.Client
	actor string
	role  string
	other bool // a model of the benchmark: separate accounting, no arm limits, not in the agent's log

	calling chan struct{} // semaphore: holds one token during a call

	mu    sync.Mutex
	n     int         // number of the current call, or of the next one
	tries []model.Try // tries of that call; failed ones are already in the journal
	jerr  error       // first journal errors, joined
	out   *flight     // clock state of the call in flight; nil if there is none
}

// A roleKey identifies a recorder.
type roleKey struct {
	actor, role string
	other       bool
}

// client returns the client of an actor and role, created with f on first use and reused
// afterwards.
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
	rec := &recorder{a: a, actor: actor, role: role, other: k.other, calling: make(chan struct{}, 1),
		n: a.numbers[k]}
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
			if err := a.allow(); err != nil { // failed tries may have used up a limit
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
	if len(tries) == 0 { // a client without a retry wrapper does not report its tries
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

// settle makes the results of the last call durable before the next one is paid for, so that a
// killed process loses only the calls in flight.
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

// again returns the reply that an earlier attempt paid for if the request is the same, else nil.
func (r *recorder) again(req *model.Request) *model.Response {
	if r.other || r.a.replay == nil {
		return nil
	}
	r.mu.Lock()
	n := r.n
	r.mu.Unlock()
	return r.a.replay.find(r.actor, r.role, n, req.Hash())
}

// lost reports whether the time of a try that ended with err is charged to the provider and not to
// the agent.
func lost(err error) bool {
	var e *model.Error
	return errors.As(err, &e) && e.Provider()
}

// generate calls the client. A panic becomes an error of class [model.Invalid].
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

// failed counts and records a failed try before the next one is made, so that the record of a
// killed process includes it.
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

// reply appends the Reply event that Call entries refer to.
func (r *recorder) reply(ctx context.Context, id string, resp *model.Response) error {
	if r.other {
		return nil // the agent can read the log, so a grader's replies are only in the Call entry
	}
	if depth(resp.Opaque) > maxDepth { // JSON readers would refuse it
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

// raw stores the provider's raw response and, with KeepSent, the raw request.
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

// load adds the calls of one attempt that have a reply. Attempts loaded earlier take precedence.
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
