// Package modeltest provides fake models for tests: clients that are functions ([Func], [Script]),
// an OpenAI-compatible server with configurable faults ([Server], [Fault]), a proxy that adds the
// same faults to another server ([Proxy]), and the test suite for vendors' clients ([Conformance]).
package modeltest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/model"
)

// A Func answers call n (from 0) of a binding.
type Func func(ctx context.Context, b model.Binding, n int, req *model.Request) (*model.Response, error)

// Factory returns a factory of clients that call f and delay each reply by delay. Benchmarks use
// it: a client is two words and a counter, and a call without a delay adds no cost to f. The
// clients do not call Binding.Try; the retry wrapper does.
func (f Func) Factory(delay time.Duration) model.Factory {
	return func(b model.Binding) (model.Client, error) { return &client{f: f, b: b, delay: delay}, nil }
}

// Client returns a client with an empty binding.
func (f Func) Client() model.Client { return &client{f: f} }

type client struct {
	f     Func
	b     model.Binding
	delay time.Duration
	n     atomic.Int64
}

func (c *client) Info() model.Info {
	return model.Info{Vendor: "test", Name: "func", Images: true, Tools: true}
}

func (c *client) Generate(ctx context.Context, req *model.Request) (*model.Response, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	n := int(c.n.Add(1)) - 1
	if c.delay > 0 {
		t := time.NewTimer(c.delay)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return nil, context.Cause(ctx)
		}
	}
	return c.f(ctx, c.b, n, req)
}

// Script answers call n of each binding with replies[n], and later calls with an error of class
// request.
func Script(replies ...model.Response) Func {
	return func(_ context.Context, _ model.Binding, n int, _ *model.Request) (*model.Response, error) {
		if n >= len(replies) {
			return nil, &model.Error{Class: model.Invalid,
				Err: fmt.Errorf("the script has %d replies, and this is call %d", len(replies), n+1)}
		}
		r := replies[n]
		return &r, nil
	}
}

// Fail answers every call with an error of the given class.
func Fail(class string) Func {
	return func(context.Context, model.Binding, int, *model.Request) (*model.Response, error) {
		return nil, &model.Error{Class: class, Err: errors.New("failed by the test")}
	}
}

// Text returns a reply without calls.
func Text(s string) model.Response {
	return model.Response{Model: "test", Parts: event.Text(s), Stop: "stop", Usage: event.Usage{In: 10, Out: 5}}
}

// Calls returns a reply with tool calls: name, arguments, name, arguments …
func Calls(nameArgs ...string) model.Response {
	r := model.Response{Model: "test", Stop: "tool_calls", Usage: event.Usage{In: 10, Out: 5}}
	for i := 0; i+1 < len(nameArgs); i += 2 {
		r.Calls = append(r.Calls, event.ReplyCall{ID: fmt.Sprintf("call_%d", i/2), Name: nameArgs[i],
			Args: nameArgs[i+1]})
	}
	return r
}
