package jupyter

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"net"
	"sync"
	"time"
)

// A wire is a connection of ZeroMQ's protocol ZMTP 3.0 (RFC 23) with the mechanism NULL, which is no
// security at all: messages are signed instead.
type wire struct {
	c  net.Conn
	r  *bufio.Reader
	mu sync.Mutex // of writes
}

// Flags of a frame.
const (
	flagMore    = 1
	flagLong    = 2
	flagCommand = 4
)

// greeting is what both sides send first: a signature, the version and the mechanism.
var greeting = func() (g [64]byte) {
	g[0], g[9] = 0xff, 0x7f
	g[10] = 3
	copy(g[12:], "NULL")
	return g
}()

const (
	maxCommand   = 4 << 10 // a command of the handshake
	maxWriteTime = 10 * time.Second
)

// handshake begins to speak as a socket of a type: "DEALER", "SUB".
func handshake(c net.Conn, socket string) (*wire, error) {
	w := &wire{c: c, r: bufio.NewReaderSize(c, 64<<10)}
	if err := w.write(greeting[:]); err != nil {
		return nil, err
	}
	var theirs [64]byte
	if _, err := io.ReadFull(w.r, theirs[:]); err != nil {
		return nil, fmt.Errorf("reading the greeting: %w", err)
	}
	if theirs[0] != 0xff || theirs[9]&1 == 0 || theirs[10] < 3 || !bytes.Equal(theirs[12:32], greeting[12:32]) {
		return nil, errors.New("the other side does not speak ZMTP 3 without security")
	}
	ready := []byte{flagCommand, 0}
	ready = append(ready, "\x05READY"...)
	for _, p := range [][2]string{{"Socket-Type", socket}, {"Identity", ""}} {
		ready = append(append(ready, byte(len(p[0]))), p[0]...)
		ready = append(binary.BigEndian.AppendUint32(ready, uint32(len(p[1]))), p[1]...)
	}
	ready[1] = byte(len(ready) - 2)
	if err := w.write(ready); err != nil {
		return nil, err
	}
	f, err := w.frame()
	if err != nil {
		return nil, fmt.Errorf("reading the handshake: %w", err)
	}
	if !f.command || f.size > maxCommand {
		return nil, errors.New("the handshake is no command")
	}
	p, err := w.keep(f.size, maxCommand, 0, nil)
	if err != nil {
		return nil, err
	}
	if !bytes.HasPrefix(p.b, []byte("\x05READY")) {
		return nil, fmt.Errorf("the handshake was refused: %.60q", p.b)
	}
	if socket == "SUB" { // to everything
		return w, w.send([]byte{1})
	}
	return w, nil
}

func (w *wire) write(b []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.c.SetWriteDeadline(time.Now().Add(maxWriteTime))
	defer w.c.SetWriteDeadline(time.Time{}) // it closes connections of a sandbox
	_, err := w.c.Write(b)
	return err
}

// send sends a message.
func (w *wire) send(frames ...[]byte) error {
	var b []byte
	for i, f := range frames {
		flags := byte(0)
		if i < len(frames)-1 {
			flags = flagMore
		}
		if len(f) < 256 {
			b = append(b, flags, byte(len(f)))
		} else {
			b = binary.BigEndian.AppendUint64(append(b, flags|flagLong), uint64(len(f)))
		}
		b = append(b, f...)
	}
	return w.write(b)
}

// A frame is the beginning of a part of a message.
type frame struct {
	size          int64
	more, command bool
}

var errFrame = errors.New("a frame that is not one of ZMTP")

// frame reads the beginning of a frame. The caller reads its content with keep.
func (w *wire) frame() (frame, error) {
	flags, err := w.r.ReadByte()
	if err != nil {
		return frame{}, err
	}
	f := frame{more: flags&flagMore != 0, command: flags&flagCommand != 0}
	if flags&^(flagMore|flagLong|flagCommand) != 0 || f.more && f.command {
		return frame{}, errFrame
	}
	if flags&flagLong == 0 {
		n, err := w.r.ReadByte()
		f.size = int64(n)
		return f, err
	}
	var b [8]byte
	if _, err := io.ReadFull(w.r, b[:]); err != nil {
		return frame{}, err
	}
	n := binary.BigEndian.Uint64(b[:])
	if n > 1<<62 {
		return frame{}, errFrame
	}
	f.size = int64(n)
	return f, nil
}

// A piece is the content of a frame. Of a large one it has only the beginning and the end.
type piece struct {
	b, tail []byte
	left    int64 // bytes between them
}

// keep reads the content of a frame: all of it if it has at most max bytes, else the first and the
// last edge bytes. Memory is only taken for what has arrived. Everything is written to h, too.
func (w *wire) keep(size int64, max, edge int64, h hash.Hash) (p piece, err error) {
	to := func(b *bytes.Buffer, n int64) error {
		_, err := io.CopyN(tee{b, h}, w.r, n)
		return err
	}
	var head, tail bytes.Buffer
	if size <= max {
		err = to(&head, size)
		return piece{b: head.Bytes()}, err
	}
	p.left = size - 2*edge
	if err = to(&head, edge); err == nil {
		_, err = io.CopyN(tee{nil, h}, w.r, p.left)
	}
	if err == nil {
		err = to(&tail, edge)
	}
	p.b, p.tail = head.Bytes(), tail.Bytes()
	return p, err
}

// A tee writes to both, if they are not nil.
type tee struct {
	b *bytes.Buffer
	h hash.Hash
}

func (t tee) Write(p []byte) (int, error) {
	if t.b != nil {
		t.b.Write(p)
	}
	if t.h != nil {
		t.h.Write(p)
	}
	return len(p), nil
}
