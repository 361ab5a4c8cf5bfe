package workspace

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/runtime/jupyter"
)

// cell executes an action of kind "run_ipython" in the actor's kernel.
func (w *Workspace) cell(ctx context.Context, a event.Event, c event.Cell) (event.Body, error) {
	if len(c.Code) > 1<<20 {
		return event.Error{Code: "invalid_call",
			Text: "the code is longer than 1 MiB; write what it needs to a file first"}, nil
	}
	timeout := w.timeout(a)
	res, err := w.kernel(a.Actor).Run(ctx, jupyter.Cell{Code: c.Code, Dir: w.where(a.Actor), Timeout: timeout})
	var no *jupyter.Refused
	if errors.As(err, &no) {
		return event.Error{Code: "unsupported", Text: clean([]byte(no.Error()))}, nil
	}
	if err != nil {
		return nil, err
	}
	out := event.CellResult{Error: res.Error, TimedOut: res.TimedOut, OOM: res.OOM, OutBytes: res.Bytes,
		WallMS: res.Wall.Milliseconds()}
	if c.Extra {
		out.Dir, out.Python = clean([]byte(res.Dir)), clean([]byte(res.Python))
	}
	for _, p := range res.Parts {
		switch {
		case p.Image == nil:
			out.Parts = append(out.Parts, event.Part{Text: clean([]byte(p.Text))})
		case w.options.Keep == nil:
			out.Parts = append(out.Parts, event.Part{Text: "[a picture that cannot be shown is left out]\n"})
		default:
			b, err := w.options.Keep(ctx, p.Type, p.Image)
			if err != nil {
				return nil, err
			}
			out.Parts = append(out.Parts, event.Part{Blob: &b})
		}
	}
	out.Parts, out.Truncated = cutParts(out.Parts, int(w.options.Limit))
	if res.Began {
		out.Prefix = "[The kernel was started anew: what earlier cells have defined is gone.]\n"
	}
	if res.NoDir {
		out.Prefix += "[The kernel cannot enter the shell's directory, " + clean([]byte(w.where(a.Actor))) + ".]\n"
	}
	if res.TimedOut {
		out.Suffix = fmt.Sprintf("\n[Execution timed out (%v seconds).]", timeout.Seconds())
	}
	const next = " The next cell starts a new one.]"
	switch res.Ended {
	case "":
	case jupyter.NotInterrupted:
		out.Suffix += "\n[The interrupt did not help, so the kernel was killed." + next
	case jupyter.ByCell:
		out.Suffix += "\n[The cell has ended the kernel." + next
	default:
		out.Suffix += "\n[The kernel has died: it " + clean([]byte(res.Ended)) + "." + next
	}
	return out, nil
}

// timeout returns the time limit of an action.
func (w *Workspace) timeout(a event.Event) time.Duration {
	timeout := a.Timeout
	if timeout <= 0 {
		timeout = w.options.Timeout
	}
	if m := w.options.MaxTimeout; m > 0 {
		timeout = min(timeout, m)
	}
	return timeout
}

// kernel returns an actor's kernel, which may not be started yet.
func (w *Workspace) kernel(actor string) *jupyter.Kernel {
	w.mu.Lock()
	defer w.mu.Unlock()
	k := w.kernels[actor]
	if k == nil {
		k = jupyter.New(w.get, jupyter.Options{User: w.options.User, Dir: w.options.Dir, Env: w.options.Env}, w.had[actor])
		w.kernels[actor], w.had[actor] = k, true
	}
	return k
}

// leaveKernels ends the kernels. What they have started goes on.
func (w *Workspace) leaveKernels(ctx context.Context) {
	w.mu.Lock()
	all := w.kernels
	w.kernels = map[string]*jupyter.Kernel{}
	w.mu.Unlock()
	for _, k := range all {
		k.Leave(ctx)
	}
}

// cutParts cuts the middle out of the text of parts, if it is over a limit.
func cutParts(parts []event.Part, limit int) (kept []event.Part, cut bool) {
	all := 0
	for _, p := range parts {
		all += len(p.Text)
	}
	if all <= limit {
		return parts, false
	}
	at := 0
	for _, p := range parts {
		if p.Blob != nil {
			kept = append(kept, p)
			continue
		}
		begin := p.Text[:min(len(p.Text), max(limit/2-at, 0))]
		end := p.Text[max(min(all-limit/2-at, len(p.Text)), len(begin)):]
		missing := len(begin)+len(end) < len(p.Text)
		at += len(p.Text)
		p.Text = strings.ToValidUTF8(begin, "")
		if !cut && (missing || at == all) {
			cut = true
			p.Text += "\n[... Observation truncated due to length ...]\n"
		}
		if p.Text += strings.ToValidUTF8(end, ""); p.Text != "" {
			kept = append(kept, p)
		}
	}
	return kept, true
}
