package docker

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"

	"github.com/moby/moby/client"
)

// A channel is a container's stdin and stdout. It keeps what process 1 prints on stderr, which is
// something only when it panics.
type channel struct {
	conn net.Conn
	r    *bufio.Reader
	left uint32 // bytes left of the current frame
	errs tail
}

var errFrame = errors.New("the engine sent a broken stream")

// attach connects to a container that is running, or created and not started yet. When ctx ends,
// the client does not give up a silent engine; attach does, and closes a connection that comes
// later.
func attach(ctx context.Context, cli *client.Client, name string) (*channel, error) {
	type result struct {
		c   *channel
		err error
	}
	done := make(chan result, 1)
	go func() {
		h, err := cli.ContainerAttach(context.WithoutCancel(ctx), name,
			client.ContainerAttachOptions{Stream: true, Stdin: true, Stdout: true, Stderr: true})
		if err != nil {
			done <- result{nil, err}
			return
		}
		done <- result{&channel{conn: h.Conn, r: bufio.NewReaderSize(h.Reader, 32<<10), errs: tail{max: stackSize}},
			nil}
	}()
	select {
	case r := <-done:
		return r.c, r.err
	case <-ctx.Done():
		go func() {
			if r := <-done; r.c != nil {
				r.c.Close()
			}
		}()
		return nil, context.Cause(ctx)
	}
}

// Read reads stdout. In the engine's stream each piece has a header of eight bytes: which stream it
// belongs to, and its length.
func (c *channel) Read(p []byte) (int, error) {
	for c.left == 0 {
		var h [8]byte
		if _, err := io.ReadFull(c.r, h[:]); err != nil {
			return 0, err
		}
		n := binary.BigEndian.Uint32(h[4:])
		switch h[0] {
		case 1:
			c.left = n
		case 2:
			if _, err := io.CopyN(&c.errs, c.r, int64(n)); err != nil {
				return 0, err
			}
		default:
			return 0, errFrame
		}
	}
	if uint64(len(p)) > uint64(c.left) {
		p = p[:c.left]
	}
	n, err := c.r.Read(p)
	c.left -= uint32(n)
	return n, err
}

func (c *channel) Write(p []byte) (int, error) { return c.conn.Write(p) }
func (c *channel) Close() error                { return c.conn.Close() }
