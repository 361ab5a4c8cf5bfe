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

// NewKey makes a key for Config.Key. Whoever holds it can take the machine up again, and nobody
// inside must come to know it.
func NewKey() []byte {
	k := make([]byte, execproto.KeyLen)
	rand.Read(k)
	return k
}

// Reattach takes up a machine whose host has died, over a new end of its old channel (what
// attaching to a container gives). o.Config.Key is the key of its start; nothing else of o.Config
// is used. Both sides prove that they have the key, so that nobody who answers in the executor's
// place is believed, and whatever the dead host left in the channel is dropped.
//
// The commands of the host before that had an ID go on, and [Client.Exit] (or Exec with the same
// ID) tells their end. So does the ENTRYPOINT, which [Client.Start] takes up. All others were
// killed, also those that had read a part of their input only. What a command printed is not told
// twice; where its Exit.Full names a file, all of it is there. A host that still lives loses the
// machine: its calls fail with [sandbox.ErrGone].
//
// No run calls it yet: resume will, by the driver's Find, for machines that outlived evalrun.
//
// It waits for the executor's answer as long as ctx allows. The client owns rw from now on, also on
// error.
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
	d, err := c.ask(ctx, execproto.KindResume, e)
	if err != nil {
		c.Close()
		return nil, c.wrap(ctx, "reattach", err)
	}
	if orphan := time.Duration(d.Int()); orphan > 0 {
		go c.assure(orphan)
	}
	return c, nil
}

// handshake sends a token and waits for the answer to it. It returns what was read beyond.
func handshake(rw io.ReadWriter, key, nonce []byte) (rest []byte, err error) {
	sent := make(chan error, 1)
	// Meanwhile we read: what is in our way may have to be taken out before anything can go in.
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

// resumed gives back what was read beyond the token.
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
