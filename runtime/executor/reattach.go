package executor

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/evalrun/evalrun/internal/execproto"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// NewKey makes a key for Config.Key. Whoever has it can reattach to the sandbox, so no process
// inside may learn it.
func NewKey() []byte {
	k := make([]byte, execproto.KeyLen)
	rand.Read(k)
	return k
}

// Reattach connects to the executor of a sandbox whose host has died, over a new connection to its
// old channel (such as attaching to a container) or to its socket for other hosts. o.Config.Key is the key of its start; the rest of
// o.Config is not used. Both sides prove that they have the key, so that no process can answer in
// the executor's place. Data that the dead host left in the channel is dropped.
//
// Commands of the previous host that have an ID go on, and [Client.Exit] (or Exec with the same ID)
// returns their results. So does the ENTRYPOINT, for which [Client.Start] is called again. All
// other commands were killed, also those that had read only a part of their input. Exec delivers the
// output again, of the newest commands that have an ID and a Limit. If the
// previous host is still alive, it loses the sandbox, and its calls fail with [sandbox.ErrGone].
//
// It waits for the executor's answer until ctx ends. The client owns rw, also if Reattach fails.
func Reattach(ctx context.Context, rw io.ReadWriteCloser, o Options) (*Client, error) {
	fail := func(err error) (*Client, error) {
		if ctx.Err() != nil {
			err = fmt.Errorf("%w (%s)", context.Cause(ctx), "the executor has not answered")
		} else if o.Gone != nil {
			if why := o.Gone(); why != nil {
				err = why
			}
		}
		return nil, &sandbox.Error{Op: "reattach", ID: o.ID, Err: err}
	}
	if len(o.Config.Key) != execproto.KeyLen {
		rw.Close()
		return fail(errors.New("no key of its start"))
	}
	stop := context.AfterFunc(ctx, func() { rw.Close() })
	nonce := make([]byte, execproto.NonceLen)
	rand.Read(nonce)
	rest, err := handshake(rw, o.Config.Key, nonce)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		rw.Close()
		return fail(err)
	}
	c := newClient(&resumed{ReadWriteCloser: rw, rest: rest}, o, execproto.SessionEnd(nonce))
	var e execproto.Enc
	e.Uint(execproto.Version)
	d, err := c.request(ctx, execproto.KindResume, e)
	if err != nil {
		c.Close()
		return nil, c.wrap(ctx, "reattach", err)
	}
	if orphan := time.Duration(d.Int()); orphan > 0 {
		go c.heartbeat(orphan)
	}
	return c, nil
}

// handshake sends a token and waits for the answer. It returns what was read after the answer.
func handshake(rw io.ReadWriter, key, nonce []byte) (rest []byte, err error) {
	sent := make(chan error, 1)
	// Read at the same time: the channel may be full of old data, which has to be read before
	// anything can be written.
	go func() {
		_, err := rw.Write(execproto.Token(key, execproto.HostSpeaks, nonce))
		sent <- err
	}()
	var scan execproto.TokenScanner
	want := string(execproto.Token(key, execproto.ExecutorSpeaks, nonce))
	buf := make([]byte, execproto.MaxData)
	for {
		n, err := rw.Read(buf)
		if end := scan.Scan(buf[:n], func(token []byte) bool { return string(token) == want }); end >= 0 {
			return append([]byte(nil), buf[end:n]...), <-sent
		}
		if err == io.EOF {
			err = sandbox.ErrGone
		}
		if err != nil {
			return nil, err
		}
	}
}

// A resumed reader first returns what was read after the token.
type resumed struct {
	io.ReadWriteCloser
	rest []byte
}

func (r *resumed) Read(p []byte) (int, error) {
	if len(r.rest) > 0 {
		n := copy(p, r.rest)
		r.rest = r.rest[n:]
		return n, nil
	}
	return r.ReadWriteCloser.Read(p)
}
