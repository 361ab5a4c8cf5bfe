package executor

import (
	"context"
	"encoding/binary"
	"errors"

	"github.com/evalrun/evalrun/internal/execproto"
)

// A Tun carries the packets of a sandbox's network interface. Only one goroutine may call
// ReadPacket, and one at a time Put and Flush.
type Tun struct {
	Note string // what does not work, for people; "": everything works
	st   *execproto.Stream
	rest []byte // read, but not returned yet
	out  []byte
}

// Tun returns the network interface of a sandbox that was started with Config.Tun. If the interface
// could not be created, the error is a [sandbox.Unsupported] with the reason. A second call closes
// the Tun of the first.
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

// Put queues a packet, given in parts. It blocks while the sandbox does not take the previous ones.
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

// Flush sends the queued packets.
func (t *Tun) Flush() error {
	if len(t.out) == 0 {
		return nil
	}
	err := t.st.Send(execproto.KindData, t.out)
	t.out = t.out[:0]
	return err
}

// Close closes the interface. It may be called at any time, and unblocks all other calls.
func (t *Tun) Close() error {
	t.st.Reset()
	return nil
}
