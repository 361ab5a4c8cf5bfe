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

// Options of replaying.
type Options struct {
	// Strict: a reply is given only to the very request it was recorded for, with the same sampling
	// parameters. Otherwise the place of the call is enough, as when a prompt has changed a little
	// since.
	Strict bool
	// Delay of each reply, as if a model thought.
	Delay time.Duration
}

// A Tape replays. It keeps an index in memory, and the replies in the file. It is safe for several
// goroutines.
type Tape struct {
	path  string
	opt   Options
	f     *os.File
	index map[key][]place
	names map[string]bool
	old   bool
}

// A place is where one line is. Several attempts and arms may have answered under one key.
type place struct {
	off     int64
	size    int32
	attempt int32
	arm     string
	request [8]byte // the hash's beginning
	params  *string // nil: the line does not say
}

// Open reads a tape's index. A last line that was torn by a crash is left out; any other line that
// is not right is an error that names it.
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
	intern := map[string]string{} // a tape names the same few things over and over
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
			return nil // what stands behind the last line break was torn
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

// stages number the calls of version 1 through all stages of a trial: there each stage began again
// at 0.
type stages map[series]*stage

type series struct {
	key     // with N 0
	arm     string
	attempt int
}

type stage struct{ first, last int }

// number is the call's number in the trial. Lines of a trial are in the order of its calls.
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

// Models are the names of the models that the tape has replies of.
func (t *Tape) Models() []string {
	var out []string
	for n := range t.names {
		out = append(out, n)
	}
	return out
}

// Old reports whether the tape has replies of version 1, of which the sampling parameters are not
// known and not compared.
func (t *Tape) Old() bool { return t.old }

// Factory makes clients that play the replies of one model, called with params where a request says
// nothing. Each call is told to Binding.Try, From "tape". Where the tape has several replies under
// one key (arms that differ in their prompt, attempts that were repeated), the first of these is
// taken, and among equals that of the latest attempt:
//
//  1. of this arm, for this very request with these sampling parameters
//  2. of another arm, for this very request with these sampling parameters
//  3. not strict: of this arm
//  4. not strict: of any arm
//
// A call without a reply fails with a *[Missing] in a *[model.Error] of class request: ours, and
// not the agent's.
func (t *Tape) Factory(name string, params model.Params) model.Factory {
	return func(b model.Binding) (model.Client, error) {
		return &playing{t: t, name: name, b: b, n: b.Counter(), params: params}, nil
	}
}

// Missing says which reply a tape lacks.
type Missing struct {
	Tape, Benchmark, Task, Role, Model string
	Repeat, N                          int
	Other                              bool // it has one there, for another request
	// Recorded and Params are sampling parameters as JSON, where it has one there for this request
	// with others.
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
