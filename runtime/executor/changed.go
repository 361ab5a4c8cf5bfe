package executor

import (
	"bufio"
	"context"
	"fmt"
	"io"

	"github.com/evalrun/evalrun/internal/execproto"
)

// A FileChange is a difference between the files of the baseline and those of now; see
// [execproto.FileChange]. Its strings come from the sandbox and are hostile.
type FileChange = execproto.FileChange

// Values of FileChange.What beside those of [Change]: a file system was mounted, replaced or unmounted
// there; or something that Target names is not as it was, see [Client.Baseline].
const (
	Mounted = execproto.Mounted
	Setting = execproto.Setting
)

// Limits of what an executor may send.
const (
	maxChanges = 1 << 20
	maxPaths   = 256 << 20 // bytes
)

// Baseline records the state of all files that processes of the sandbox can change, in the memory
// of the executor, where none of them can reach it: those of every mount that can be written,
// except the kernel's own file systems such as /proc. With them it records what commands inherit from
// process 1 (priority, processors, how the kernel rates it when memory is short), which
// shared memory, semaphores and queues exist, and which file systems are full. It replaces the
// earlier baseline, unless keep is set and that one is complete, of this host or one before.
func (c *Client) Baseline(ctx context.Context, keep bool) error {
	var e execproto.Enc
	e.Bool(keep)
	if _, err := c.request(ctx, execproto.KindBaseline, e); err != nil {
		return c.wrap(ctx, "baseline", err)
	}
	return nil
}

// Changed calls f for each difference between the baseline and the files now, and returns the
// reason why these are not all ("": they are), which may contain a path. The sandbox's processes
// decide how many there are, up to a million. If f returns an error, Changed stops and returns it.
//
// A file is unchanged if its type, mode, owner, size, inode and times are those of the baseline. A
// program can set all of these but the time of the last change of any kind (ctime). Of devices and
// pipes the times do not count. Of a directory only type, mode and owner count: if it is new, was
// replaced or moved here, its entries are added or altered. Of one that was removed only its own
// path is reported.
//
// The answer describes one moment only if no process changes files meanwhile. Opening a file for
// writing can be a change already (a copy to the container's layer), and so is a new hard link to
// it. docs/decisions/second-opinion.md has what was measured.
func (c *Client) Changed(ctx context.Context, f func(FileChange) error) (gap string, err error) {
	err = c.records(ctx, "changed", execproto.KindChanged, nil, func(record []byte) error {
		d := execproto.NewDec(record)
		v := d.FileChange()
		if err := d.Err(); err != nil {
			return err
		}
		if err := f(v); err != nil {
			return callerError{err}
		}
		return nil
	}, &gap)
	return gap, err
}

// Mark begins to watch whether files are used: opened, executed, mapped, or read through a
// descriptor that was open before. The use of a symbolic link is that of what it leads to; if that
// is a directory, the use of anything below it, through whatever path. Further names of a file are
// used with it. Directories are left out, since what is in them counts. What only looks at a file
// without opening it (stat, access, readlink), removes it or renames it does not use it.
//
// Mark returns the files whose use would not be seen, for example because the kernel limits the
// number of watches, which all sandboxes of a user share. It may be called again for more files.
//
// What the client itself reads or writes later (Get, Put) counts as used, too. So mark files after
// the last such call, and call [Client.Used] before the next.
func (c *Client) Mark(ctx context.Context, paths []string) (missed []string, err error) {
	err = c.records(ctx, "mark", execproto.KindMark, paths, func(record []byte) error {
		missed = append(missed, string(record))
		return nil
	}, new(string))
	return missed, err
}

// Used ends the watch of [Client.Mark] and returns the marked files that were used, and the reason
// why these may not be all ("": they are).
func (c *Client) Used(ctx context.Context) (used []string, gap string, err error) {
	err = c.records(ctx, "used", execproto.KindUsed, nil, func(record []byte) error {
		used = append(used, string(record))
		return nil
	}, &gap)
	return used, gap, err
}

// A callerError is one of the caller's function and not of the sandbox.
type callerError struct{ error }

// records sends a request with a list of paths (nil: none), calls f for each record of the answer
// but the last, and stores that in gap.
func (c *Client) records(ctx context.Context, op string, kind byte, paths []string, f func([]byte) error,
	gap *string) error {
	if ctx.Err() != nil {
		return c.wrap(ctx, op, context.Cause(ctx))
	}
	st, stop, err := c.open(ctx, kind, nil)
	if err != nil {
		return c.wrap(ctx, op, err)
	}
	defer stop()
	err = sendRecords(st, paths)
	if err == nil {
		err = eachRecord(st, f, gap)
	}
	if err == nil {
		st.Finish()
		return nil
	}
	st.Reset()
	if own, ok := err.(callerError); ok {
		return own.error
	}
	return c.wrap(ctx, op, err)
}

func sendRecords(st *execproto.Stream, list []string) error {
	w := bufio.NewWriterSize(st, execproto.MaxData)
	for _, s := range list {
		if len(s) > execproto.MaxRecord {
			return fmt.Errorf("a path of %d bytes", len(s))
		}
		if err := execproto.WriteRecord(w, s); err != nil {
			return err
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return st.Send(execproto.KindEOF, nil)
}

// eachRecord calls f for each record up to the gap.
func eachRecord(st *execproto.Stream, f func([]byte) error, gap *string) error {
	r := bufio.NewReaderSize(st, execproto.MaxData)
	var buf []byte
	for n, size := 0, 0; ; n++ {
		var err error
		if buf, err = execproto.ReadRecord(r, buf); err == io.EOF {
			return fmt.Errorf("%w: a list without an end", execproto.ErrProtocol)
		} else if err != nil {
			return err
		}
		why, last := execproto.DecodeGap(buf)
		if size += len(buf); n > maxChanges || size > maxPaths {
			why, last = "the sandbox reports more than we take", true
		}
		if last {
			*gap = short(why, 2000)
			return nil
		}
		if err := f(buf); err != nil {
			return err
		}
	}
}
