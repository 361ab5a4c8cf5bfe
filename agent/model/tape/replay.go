package tape

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/evalrun/evalrun/agent/model"
	"github.com/evalrun/evalrun/internal/fsutil"
)

// Options configures the replay of a tape.
type Options struct {
	// Strict replays a reply only for exactly the request it was recorded for, with the same
	// sampling parameters. Otherwise the position of the call is enough, which allows for small
	// changes of a prompt.
	Strict bool
	// Delay is the simulated latency of each reply.
	Delay time.Duration
}

// A Tape replays recorded replies. It keeps an index in memory and reads the replies from the file.
// It is safe for concurrent use.
type Tape struct {
	path  string
	opt   Options
	f     *os.File
	index map[key][]place
	names map[string]bool
	old   bool
}

// A place is the position of one line. One key may have several, from different attempts and arms.
type place struct {
	off     int64
	size    int32
	attempt int32
	arm     string
	request [8]byte // the first bytes of the request's hash
	params  *string // nil if the line does not have them
}

// Open reads a tape's index. It ignores a torn last line left by a crash. For any other invalid
// line it returns an error with the line's number.
func Open(path string, opt Options) (*Tape, error) {
	f, err := fsutil.Open(path)
	if err != nil {
		return nil, fmt.Errorf("tape: %w", err)
	}
	t := &Tape{path: path, opt: opt, f: f, index: map[key][]place{}, names: map[string]bool{}}
	if err := t.read(); err != nil {
		f.Close()
		return nil, err
	}
	return t, nil
}

func (t *Tape) read() error {
	r := bufio.NewReaderSize(t.f, 1<<20)
	intern := map[string]string{} // a tape repeats the same few strings
	params := map[string]*string{}
	stages := stages{}
	in := func(s *string) {
		if have, ok := intern[*s]; ok {
			*s = have
		} else {
			intern[*s] = *s
		}
	}
	var off int64
	for n := 1; ; n++ {
		raw, err := r.ReadBytes('\n')
		if err == io.EOF {
			return nil // text after the last line break is a torn line
		}
		if err != nil {
			return fmt.Errorf("tape %s: %w", t.path, err)
		}
		var l struct {
			V int `json:"v"`
			key
			Attempt int          `json:"attempt"`
			Arm     string       `json:"arm"`
			Request string       `json:"request"`
			Params  model.Params `json:"params"`
		}
		if err := json.Unmarshal(raw, &l); err != nil {
			return fmt.Errorf("tape %s:%d: %w", t.path, n, err)
		}
		if l.V < 1 || l.V > version {
			return fmt.Errorf("tape %s:%d: version %d; this program reads version %d", t.path, n, l.V, version)
		}
		for _, s := range []*string{&l.Benchmark, &l.Task, &l.Actor, &l.Role, &l.Model, &l.Arm} {
			in(s)
		}
		t.names[l.Model] = true
		p := place{off: off, size: int32(len(raw)), attempt: int32(l.Attempt), arm: l.Arm}
		copy(p.request[:], l.Request)
		if l.V == 1 {
			t.old = true
			l.N = stages.number(l.key, l.Arm, l.Attempt)
		} else {
			text, err := sampling(l.Params)
			if err != nil {
				return fmt.Errorf("tape %s:%d: params: %w", t.path, n, err)
			}
			if params[text] == nil {
				params[text] = &text
			}
			p.params = params[text]
		}
		t.index[l.key] = append(t.index[l.key], p)
		off += int64(len(raw))
	}
}

// stages renumber the calls of version 1, which began at 0 in each stage, across all stages of a
// trial.
type stages map[series]*stage

type series struct {
	key     // with N set to 0
	arm     string
	attempt int
}

type stage struct{ first, last int }

// number returns the call's number in the trial. The lines of a trial are in the order of its
// calls.
func (s stages) number(k key, arm string, attempt int) int {
	n := k.N
	k.N = 0
	id := series{k, arm, attempt}
	st := s[id]
	switch {
	case st == nil:
		st = &stage{}
		s[id] = st
	case n <= st.last:
		st.first += st.last + 1
	}
	st.last = n
	return st.first + n
}

// Close closes the file.
func (t *Tape) Close() error { return t.f.Close() }

// Models returns the names of the models that the tape has replies of.
func (t *Tape) Models() []string {
	var out []string
	for n := range t.names {
		out = append(out, n)
	}
	return out
}

// Old reports whether the tape has replies of version 1. Their sampling parameters are not known
// and are not compared.
func (t *Tape) Old() bool { return t.old }

// Factory returns a factory of clients that replay the replies of one model. params are the
// parameters of a request that leaves them unset. Each call is reported to Binding.Try with From
// set to "tape". If the tape has several replies under one key (arms that differ in their prompt,
// repeated attempts), the first match in this order is used, and of equal matches the one of the
// latest attempt:
//
//  1. this arm, exactly this request and these sampling parameters  2. another arm, exactly this
//
// request and these sampling parameters  3. not strict: this arm  4. not strict: any arm
//
// A call without a reply fails with a *[Missing] in a *[model.Error] of class request, which is not
// the agent's failure.
func (t *Tape) Factory(name string, params model.Params) model.Factory {
	return func(b model.Binding) (model.Client, error) {
		return &playing{t: t, name: name, b: b, n: b.Counter(), params: params}, nil
	}
}

// Missing describes a reply that the tape does not have.
type Missing struct {
	Tape, Benchmark, Task, Role, Model string
	Repeat, N                          int
	Other                              bool // the tape has a reply at this position for another request
	// Recorded and Params are the recorded and the requested sampling parameters as JSON, if the
	// tape has this request with other parameters.
	Recorded, Params string
}

func (m *Missing) Error() string {
	s := fmt.Sprintf("the tape %s has no reply of %q for call %d (%s) of %s/%s, repeat %d", m.Tape, m.Model, m.N+1,
		m.Role, m.Benchmark, m.Task, m.Repeat)
	none := func(params string) string {
		if params == "" {
			return "none"
		}
		return params
	}
	switch {
	case m.Recorded != m.Params:
		return fmt.Sprintf("%s, with the sampling parameters of now: %s; recorded were: %s; record it again, or "+
			"replay without strict", s, none(m.Params), none(m.Recorded))
	case m.Other:
		return s + ", to this request: prompt, tools or what the sandbox printed have changed since; record it again, or replay without strict"
	}
	return s + ": record it again"
}

type playing struct {
	t      *Tape
	name   string
	b      model.Binding
	n      func() int
	params model.Params
}

func (c *playing) Info() model.Info {
	return model.Info{Vendor: "tape", Name: c.name, Images: true, Tools: true}
}

func (c *playing) Generate(ctx context.Context, req *model.Request) (*model.Response, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	begun := time.Now()
	n := c.n()
	hash := req.Hash()
	params, err := sampling(req.Params.Over(c.params))
	if err != nil {
		return nil, &model.Error{Class: model.Invalid, Err: fmt.Errorf("sampling parameters: %w", err)}
	}
	resp, err := c.find(n, hash, params)
	if err == nil && c.t.opt.Delay > 0 {
		timer := time.NewTimer(c.t.opt.Delay)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, context.Cause(ctx)
		}
	}
	if c.b.Try != nil {
		t := model.Try{N: n, Try: 1, Model: c.name, Request: hash, From: "tape", Start: begun,
			Latency: time.Since(begun), Err: err, Response: resp}
		c.b.Try(t)
	}
	return resp, err
}

func (c *playing) find(n int, hash, params string) (*model.Response, error) {
	k := keyOf(c.b, c.name, n)
	best, rank := place{}, 0
	recorded := params
	for _, p := range c.t.index[k] {
		r := 1
		if p.arm == c.b.Arm {
			r = 2
		}
		asked := string(p.request[:]) == hash[:len(p.request)]
		same := p.params == nil || *p.params == params
		switch {
		case asked && same:
			r += 2
		case c.t.opt.Strict:
			if asked {
				recorded = *p.params
			}
			continue
		}
		if r > rank || r == rank && p.attempt >= best.attempt {
			best, rank = p, r
		}
	}
	fail := func(err error) (*model.Response, error) { return nil, &model.Error{Class: model.Invalid, Err: err} }
	if rank == 0 {
		return fail(&Missing{
			Tape: c.t.path, Benchmark: k.Benchmark, Task: k.Task, Role: k.Role, Model: k.Model, Repeat: k.Repeat, N: n,
			Other: len(c.t.index[k]) > 0, Recorded: recorded, Params: params,
		})
	}
	raw := make([]byte, best.size)
	if _, err := c.t.f.ReadAt(raw, best.off); err != nil {
		return fail(fmt.Errorf("tape %s: %w", c.t.path, err))
	}
	var l line
	if err := json.Unmarshal(raw, &l); err != nil {
		return fail(fmt.Errorf("tape %s: %w", c.t.path, err))
	}
	r := l.Reply
	return &model.Response{
		ID: r.ID, Model: r.Model, Parts: r.Parts, Reasoning: r.Reasoning, Calls: r.Calls, Stop: r.Stop, Usage: r.Usage,
		Opaque: r.Opaque, From: "tape",
	}, nil
}
