package executor

import (
	"context"
	"encoding/binary"
	"errors"

	"github.com/evalrun/evalrun/internal/execproto"
)

// A Tun is the packets of a machine's network interface. ReadPacket belongs to one goroutine; Put,
// Flush to one at a time.
type Tun struct {
	Note string // what does not work of it, for people; "": all does
	st   *execproto.Stream
	rest []byte // read, and not handed out yet
	out  []byte
}

// Tun takes over the network interface of a machine that was started with Config.Tun. Where none
// could be had, it is a [sandbox.Unsupported] error with the reason. Taken again, the one before
// ends.
func (c *Client) Tun(ctx context.Context) (*Tun, error) {
	if err := ctx.Err(); err != nil {
		return nil, c.wrap(ctx, "network", err)
	}
	st, stop, err := c.open(ctx, execproto.KindTun, nil)
	if err != nil {
		return nil, c.wrap(ctx, "network", err)
	}
	d, err := result(st)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	var note string
	if err == nil {
		note = d.String()
		err = d.Err()
	}
	if err != nil {
		st.Reset()
		return nil, c.wrap(ctx, "network", err)
	}
	return &Tun{Note: short(note, 1024), st: st}, nil
}

// ReadPacket returns the next packet, valid until the next call.
func (t *Tun) ReadPacket() ([]byte, error) {
	for {
		if len(t.rest) >= 2 {
			if n := 2 + int(binary.BigEndian.Uint16(t.rest)); len(t.rest) >= n {
				p := t.rest[2:n]
				t.rest = t.rest[n:]
				return p, nil
			}
		}
		m, err := t.st.Recv()
		if err != nil {
			return nil, err
		}
		if m.Kind != execproto.KindData {
			return nil, errors.New("the executor broke the protocol")
		}
		if len(t.rest) == 0 {
			t.rest = m.Body
		} else {
			t.rest = append(t.rest[:len(t.rest):len(t.rest)], m.Body...)
		}
	}
}

// Put queues a packet, given in parts. It waits while the machine does not take what was sent
// before.
func (t *Tun) Put(parts ...[]byte) error {
	n := 0
	for _, p := range parts {
		n += len(p)
	}
	if n > execproto.TunMTU {
		return errors.New("packet too long")
	}
	if len(t.out)+2+n > execproto.MaxData {
		if err := t.Flush(); err != nil {
			return err
		}
	}
	if t.out == nil {
		t.out = make([]byte, 0, execproto.MaxData)
	}
	t.out = binary.BigEndian.AppendUint16(t.out, uint16(n))
	for _, p := range parts {
		t.out = append(t.out, p...)
	}
	return nil
}

// Flush sends what is queued.
func (t *Tun) Flush() error {
	if len(t.out) == 0 {
		return nil
	}
	err := t.st.Send(execproto.KindData, t.out)
	t.out = t.out[:0]
	return err
}

// Close lets the interface go. It may be called at any time, and wakes all who wait.
func (t *Tun) Close() error {
	t.st.Reset()
	return nil
}
