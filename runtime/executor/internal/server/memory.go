package server

import (
	"bytes"
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// text returns the C string at an address of a task's memory, unless it cannot be read or
// is longer than limit.
func (t *tracer) text(tid int, at uint64, limit int) (s string, ok bool) {
	b := t.buf[:0]
	for len(b) < limit {
		// Up to the end of a page: the next one may not exist.
		n := min(limit-len(b), 256, int(4096-at%4096))
		more := b[len(b) : len(b)+n]
		if t.read(tid, at, more) != n {
			return "", false
		}
		if end := bytes.IndexByte(more, 0); end >= 0 {
			return string(b[:len(b)+end]), true
		}
		b, at = b[:len(b)+n], at+uint64(n)
	}
	return "", false
}

// word returns the 8 bytes at an address of a task's memory, or 0.
func (t *tracer) word(tid int, at uint64) uint64 {
	var b [8]byte
	if t.read(tid, at, b[:]) != len(b) {
		return 0
	}
	return binary.LittleEndian.Uint64(b[:])
}

// read reads a task's memory, which is in its system call.
func (t *tracer) read(tid int, at uint64, b []byte) int {
	local := []unix.Iovec{{Base: &b[0]}}
	local[0].SetLen(len(b))
	n, err := unix.ProcessVMReadv(tid, local, []unix.RemoteIovec{{Base: uintptr(at), Len: len(b)}}, 0)
	if err == unix.ENOSYS || err == unix.EPERM { // an engine's filter
		n, _ = unix.PtracePeekData(tid, uintptr(at), b)
	}
	return n
}
