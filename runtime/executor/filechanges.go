package executor

import (
	"context"
	"fmt"

	"github.com/evalrun/evalrun/internal/execproto"
)

// A Watch selects files of a sandbox; see [execproto.Watch].
type Watch = execproto.Watch

// A Change is a difference between a snapshot and the files now; see [execproto.Change].
type Change = execproto.Change

// DirEvents are the changes in a watched directory; see [execproto.DirEvents].
type DirEvents = execproto.DirEvents

// Values of Change.What.
const (
	Added   = execproto.Added
	Altered = execproto.Altered
	Gone    = execproto.Gone
)

// Snapshot records the state of the watched files (type, owner, size and times) inside the
// executor, where no process of the sandbox can reach it. The times include that of the last change
// of any kind, which no process can set. It replaces the snapshot before.
func (c *Client) Snapshot(ctx context.Context, ws []Watch) error {
	if _, err := c.request(ctx, execproto.KindSnapshot, execproto.EncodeWatches(ws)); err != nil {
		return c.wrap(ctx, "snapshot", err)
	}
	return nil
}

// Changes returns the files that differ from the snapshot, and new files beside them; cut says that
// the list is not complete. The paths come from the sandbox and are hostile.
func (c *Client) Changes(ctx context.Context) (list []Change, cut bool, err error) {
	err = c.stream(ctx, "changes", execproto.KindChanges, nil, func(d *execproto.Dec) error {
		for d.More() && len(list) < 20_000 {
			list = append(list, d.Change())
		}
		return d.Err()
	}, func(d *execproto.Dec) { cut = d.Bool() })
	return list, cut, err
}

// Clear replaces each of the directories by a new, empty one, whatever is there now; it follows no
// links, neither there nor in the path. The directories belong to owner ("": the user that commands
// run as by default) and nobody else can write to them. Clear returns a remark for each that was
// not a plain directory ("it was a link"). What has been a mount from the beginning is emptied,
// without a remark.
func (c *Client) Clear(ctx context.Context, owner string, dirs ...string) (remarks []string, err error) {
	var e execproto.Enc
	e.String(owner)
	e.Strings(dirs)
	d, err := c.request(ctx, execproto.KindClear, e)
	if err != nil {
		return nil, c.wrap(ctx, "clear", err)
	}
	remarks = d.Strings()
	if d.Err() != nil || len(remarks) != len(dirs) {
		return nil, c.wrap(ctx, "clear", execproto.ErrMalformed)
	}
	return remarks, nil
}

// Remove removes single files. It is no error if one does not exist.
func (c *Client) Remove(ctx context.Context, files ...string) error {
	var e execproto.Enc
	e.Strings(files)
	if _, err := c.request(ctx, execproto.KindRemove, e); err != nil {
		return c.wrap(ctx, "remove", err)
	}
	return nil
}

// WatchDir starts to record what is written into a directory, until DirEvents. It may fail for
// reasons outside of the sandbox, since the kernel limits the number of watches. entry says that
// the sandbox's ENTRYPOINT is running.
func (c *Client) WatchDir(ctx context.Context, dir string) (entry bool, err error) {
	var e execproto.Enc
	e.String(dir)
	d, err := c.request(ctx, execproto.KindDirEvents, e)
	if err == nil {
		entry, err = d.Bool(), d.Err()
	}
	if err != nil {
		return false, c.wrap(ctx, "watch directory", err)
	}
	return entry, nil
}

// DirEvents ends the watch of WatchDir and returns the changes in the directory.
func (c *Client) DirEvents(ctx context.Context) (v DirEvents, err error) {
	var e execproto.Enc
	e.String("")
	d, err := c.request(ctx, execproto.KindDirEvents, e)
	if err == nil {
		v, err = d.DirEvents(), d.Err()
	}
	if err != nil {
		return v, c.wrap(ctx, "watch directory", err)
	}
	return v, nil
}

// stream sends a request, calls frame for each data frame of the answer, and end for the result.
func (c *Client) stream(ctx context.Context, op string, kind byte, body []byte, frame func(*execproto.Dec) error,
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
