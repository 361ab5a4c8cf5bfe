package browsergym

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/evalrun/evalrun/browsergym/action"
	"github.com/evalrun/evalrun/browsergym/cdp"
	"github.com/evalrun/evalrun/browsergym/pyrepr"
)

// perform executes the calls of an action. Errors for the agent go to e.lastError; the returned
// error is one of the environment.
func (e *Env) perform(ctx context.Context, text string) error {
	err := e.do(ctx, text)
	var f *cdp.Failure
	var a *action.Error
	switch {
	case err == nil:
	case ctx.Err() != nil || errors.Is(err, cdp.ErrClosed):
		return err
	case errors.As(err, &f):
		e.lastError = f.Error()
	case errors.As(err, &a):
		e.lastError = a.Error()
	default: // for example a page that closed meanwhile
		e.lastError = "Error: " + err.Error()
	}
	return nil
}

func (e *Env) do(ctx context.Context, text string) error {
	calls, err := e.o.Actions.Parse(text)
	if err != nil {
		return err
	}
	page, err := e.context.Active(ctx)
	if err != nil {
		return err
	}
	a := &actor{e: e, page: page, retry: e.o.Actions.Retry()}
	for _, c := range calls {
		args, err := e.o.Actions.Bind(c)
		if err != nil {
			return err
		}
		if err := e.actionFunc(c.Name)(a, ctx, args); err != nil {
			return err
		}
	}
	return nil
}

// chooserTimeout returns the seconds in the error of a file chooser that did not open, 0 for other
// errors.
func chooserTimeout(text string) float64 {
	s, ok := strings.CutPrefix(text, "TimeoutError: Timeout ")
	if !ok {
		return 0
	}
	ms, _, ok := strings.Cut(s, "ms exceeded")
	n, err := strconv.ParseFloat(ms, 64)
	if !ok || err != nil {
		return 0
	}
	return n / 1000
}

// actionFunc returns the implementation of an action: the caller's or ours.
func (e *Env) actionFunc(name string) actionFunc {
	if do := e.o.Custom[name]; do != nil {
		return func(a *actor, ctx context.Context, args []pyrepr.Value) error { return do(ctx, a.page, args) }
	}
	return actionFuncs[name]
}
