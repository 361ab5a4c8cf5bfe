// Package tail keeps the end of what programs print, for error messages.
package tail

import "sync"

// kept is the number of bytes that a Buffer keeps.
const kept = 400

// A Buffer keeps the last bytes that are written to it. The zero value is empty. It is safe for
// concurrent use.
type Buffer struct {
	mu sync.Mutex
	b  []byte
}

// Write adds p. It does not fail.
func (t *Buffer) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p...)
	if over := len(t.b) - kept; over > 0 {
		t.b = append(t.b[:0], t.b[over:]...)
	}
	return len(p), nil
}

// String returns the bytes as they were written. They may begin in the middle of a character.
func (t *Buffer) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.b)
}
