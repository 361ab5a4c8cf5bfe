package egress

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/evalrun/evalrun/internal/execproto"
	"github.com/evalrun/evalrun/runtime/executor"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// ResolvConf is the /etc/resolv.conf of a sandbox whose link the driver opens. An executor with a
// link of its own writes it by itself.
const ResolvConf = execproto.ResolvConf

// A Link carries the packets of a sandbox's network interface, created as by OpenTun of package
// isolate. One goroutine calls ReadPacket, one at a time Put and Flush, and any of them Close at
// any time.
type Link interface {
	ReadPacket() ([]byte, error) // valid until the next call
	Put(parts ...[]byte) error   // a packet in parts; it may wait for Flush
	Flush() error
	Close() error // unblocks all other calls
}

// openLink takes over the interface of the executor.
func openLink(ctx context.Context, c *executor.Client) (Link, error) {
	t, err := c.Tun(ctx)
	if err != nil {
		return nil, err
	}
	if t.Note != "" {
		t.Close()
		return nil, &sandbox.Unsupported{What: fmt.Sprintf("%.300q", t.Note)}
	}
	return t, nil
}

// FileLink returns the link of a TUN device that this process has opened. It owns f.
func FileLink(f *os.File) Link {
	return &fileLink{f: f, in: make([]byte, execproto.TunMTU), out: make([]byte, 0, execproto.TunMTU)}
}

type fileLink struct {
	f       *os.File
	in, out []byte
	once    sync.Once
}

func (l *fileLink) ReadPacket() ([]byte, error) {
	n, err := l.f.Read(l.in)
	return l.in[:n], err
}

func (l *fileLink) Put(parts ...[]byte) error {
	p := parts[0]
	if len(parts) > 1 {
		p = l.out[:0]
		for _, x := range parts {
			p = append(p, x...)
		}
	}
	if _, err := l.f.Write(p); errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil // packets that the kernel does not take are lost, as on any network
}

func (l *fileLink) Flush() error { return nil }

func (l *fileLink) Close() error {
	l.once.Do(func() { l.f.Close() })
	return nil
}
