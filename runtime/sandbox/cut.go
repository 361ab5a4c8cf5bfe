package sandbox

import (
	"fmt"
	"io"
)

// A Cut implements [Command.Limit] for drivers: it passes on the first half of a stream at once and
// keeps the last half for Flush, with a line between them that says how many bytes were left out.
// It keeps no more than half of its limit in memory. It is not safe for concurrent use.
type Cut struct {
	w     io.Writer
	err   error
	n     int64
	limit int64 // 0: no limit
	tail  []byte
	at    int // index of the oldest byte of a full tail
}

// NewCut returns a Cut that writes to w.
func NewCut(w io.Writer, limit int64) *Cut { return &Cut{w: w, limit: limit} }

// Write never fails. After the first error of the underlying writer, it only counts.
func (c *Cut) Write(p []byte) (int, error) {
	all := len(p)
	head := int64(len(p))
	if c.limit > 0 {
		head = max(0, min(head, c.limit/2-c.n))
	}
	c.n += int64(all)
	c.pass(p[:head])
	c.keep(p[head:])
	return all, nil
}

func (c *Cut) pass(p []byte) {
	if len(p) == 0 || c.err != nil {
		return
	}
	_, c.err = c.w.Write(p)
}

func (c *Cut) keep(p []byte) {
	size := int(c.limit - c.limit/2)
	if len(p) == 0 {
		return
	}
	if len(p) >= size {
		c.tail, c.at = append(c.tail[:0], p[len(p)-size:]...), 0
		return
	}
	if room := size - len(c.tail); room > 0 { // only before the ring is full
		n := min(room, len(p))
		c.tail = append(c.tail, p[:n]...)
		p = p[n:]
	}
	for len(p) > 0 {
		n := copy(c.tail[c.at:], p)
		p = p[n:]
		c.at = (c.at + n) % size
	}
}

// N returns the number of bytes written so far.
func (c *Cut) N() int64 { return c.n }

// Dropped returns how many of them would be left out if the stream ended now.
func (c *Cut) Dropped() int64 {
	if c.limit <= 0 {
		return 0
	}
	return max(0, c.n-c.limit)
}

// Flush writes the rest, once, at the end. It returns the first error of the underlying writer.
func (c *Cut) Flush() error {
	if d := c.Dropped(); d > 0 {
		c.pass(fmt.Appendf(nil, "\n[... %d bytes left out ...]\n", d))
	}
	c.pass(c.tail[c.at:])
	c.pass(c.tail[:c.at])
	c.tail, c.at = nil, 0
	return c.err
}
