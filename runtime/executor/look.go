package executor

import (
	"context"
	"fmt"

	"github.com/evalrun/evalrun/internal/execproto"
)

// A Watch names files of a machine; see [execproto.Watch].
type Watch = execproto.Watch

// A Change is a difference between what was marked and what is there; see [execproto.Change].
type Change = execproto.Change

// A Vigil is what became of a folder that was watched; see [execproto.Vigil].
type Vigil = execproto.Vigil

// What a Change can be.
const (
	Added   = execproto.Added
	Shadows = execproto.Shadows // added to a folder of $PATH, of which another had a program of this name
	Altered = execproto.Altered
	Gone    = execproto.Gone
)

// Mark remembers, inside the executor and out of reach of what runs beside it, what the watched
// files are: kind, owner, size and times, the time of the last change of any kind among them, which
// nothing inside can set. They are kept under the name of a set, in place of what was kept there
// or, with add, beside it. It returns the folders that "$PATH" stood for, in their order.
func (c *Client) Mark(ctx context.Context, set string, add bool, ws []Watch) (path []string, err error) {
	err = c.pull(ctx, "mark", execproto.KindMark, execproto.EncodeWatches(set, add, ws), func(d *execproto.Dec) error {
		path = d.Strings()
		return d.Err()
	}, nil)
	return path, err
}

// Changes tells what of a set's files is no longer as it was, and what came beside them; cut says
// that it is not all. Paths come out of the machine and are not to be trusted.
func (c *Client) Changes(ctx context.Context, set string) (list []Change, cut bool, err error) {
	var e execproto.Enc
	e.String(set)
	err = c.pull(ctx, "changes", execproto.KindChanges, e, func(d *execproto.Dec) error {
		for d.More() && len(list) < 20_000 {
			list = append(list, d.Change())
		}
		return d.Err()
	}, func(d *execproto.Dec) { cut = d.Bool() })
	return list, cut, err
}

// Clear makes each of the folders new and empty, whatever is in its place now: links are not
// followed, neither there nor on the way. They belong to owner ("": who commands run as unless they
// say otherwise), and nobody else can write there. It returns a remark for each that was not a
// plain folder ("it was a link"); what was a mount from the beginning is emptied, and no remark.
func (c *Client) Clear(ctx context.Context, owner string, dirs ...string) (remarks []string, err error) {
	var e execproto.Enc
	e.String(owner)
	e.Strings(dirs)
	d, err := c.ask(ctx, execproto.KindClear, e)
	if err != nil {
		return nil, c.wrap(ctx, "clear", err)
	}
	remarks = d.Strings()
	if d.Err() != nil || len(remarks) != len(dirs) {
		return nil, c.wrap(ctx, "clear", execproto.ErrMalformed)
	}
	return remarks, nil
}

// Remove removes single files; one that is not there is no error.
func (c *Client) Remove(ctx context.Context, files ...string) error {
	var e execproto.Enc
	e.Strings(files)
	if _, err := c.ask(ctx, execproto.KindRemove, e); err != nil {
		return c.wrap(ctx, "remove", err)
	}
	return nil
}

// Links finds symbolic links below root that lead, by what is written in them, below one of the
// folders into; at most some.
func (c *Client) Links(ctx context.Context, root string, into ...string) ([]string, error) {
	var e execproto.Enc
	e.String(root)
	e.Strings(into)
	d, err := c.ask(ctx, execproto.KindLinks, e)
	if err != nil {
		return nil, c.wrap(ctx, "links", err)
	}
	return d.Strings(), nil
}

// Vigil begins to see what is written into a folder, until VigilEnd. A kernel watches for a limited
// number of programs at a time, so it may fail for reasons that are not the machine's. entry says
// that the machine's ENTRYPOINT runs.
func (c *Client) Vigil(ctx context.Context, dir string) (entry bool, err error) {
	var e execproto.Enc
	e.String(dir)
	d, err := c.ask(ctx, execproto.KindVigil, e)
	if err == nil {
		entry, err = d.Bool(), d.Err()
	}
	if err != nil {
		return false, c.wrap(ctx, "vigil", err)
	}
	return entry, nil
}

// VigilEnd tells what became of the folder.
func (c *Client) VigilEnd(ctx context.Context) (v Vigil, err error) {
	var e execproto.Enc
	e.String("")
	d, err := c.ask(ctx, execproto.KindVigil, e)
	if err == nil {
		v, err = d.Vigil(), d.Err()
	}
	if err != nil {
		return v, c.wrap(ctx, "vigil", err)
	}
	return v, nil
}

// pull sends a request and hands on the frames that answer it, then the result's body.
func (c *Client) pull(ctx context.Context, op string, kind byte, body []byte, frame func(*execproto.Dec) error,
	end func(*execproto.Dec)) error {
	if ctx.Err() != nil {
		return c.wrap(ctx, op, context.Cause(ctx))
	}
	st, stop, err := c.open(ctx, kind, body)
	if err != nil {
		return c.wrap(ctx, op, err)
	}
	defer stop()
	for {
		m, err := st.Recv()
		if err == nil && m.Kind == execproto.KindData {
			err = frame(execproto.NewDec(m.Body))
		} else if err == nil && m.Kind != execproto.KindResult {
			err = fmt.Errorf("%w: an unexpected frame", execproto.ErrProtocol)
		}
		if err != nil {
			st.Reset()
			return c.wrap(ctx, op, err)
		}
		if m.Kind == execproto.KindResult {
			st.Finish()
			d := execproto.NewDec(m.Body)
			if err := d.Result(); err != nil {
				return c.wrap(ctx, op, err)
			}
			if end != nil {
				end(d)
			}
			return nil
		}
	}
}
