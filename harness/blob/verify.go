package blob

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"

	"github.com/evalrun/evalrun/harness/record"
)

// verified wraps an open blob so that reading it ends with ErrDamaged if its content does not match
// sum.
func verified(f *os.File, sum string) (io.ReadCloser, error) {
	st, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("blobs: %w", err)
	}
	return &verifier{f: f, h: sha256.New(), sum: sum, size: st.Size()}, nil
}

type verifier struct {
	f    *os.File
	h    hash.Hash
	sum  string
	size int64 // size when the file was opened
	n    int64 // bytes read so far
	err  error
}

// Read checks the digest as soon as it has the last byte, and withholds that byte if the digest is
// wrong. Otherwise a reader that knows the size would miss the damage: it never reads to EOF, and
// io.ReadFull drops an error that comes with the last bytes.
func (v *verifier) Read(p []byte) (int, error) {
	if v.err != nil {
		return 0, v.err
	}
	n, err := v.f.Read(p)
	v.h.Write(p[:n])
	v.n += int64(n)
	if (err == io.EOF || v.n == v.size) && hexSum(v.h) != v.sum {
		v.err = damaged(v.f.Name())
		return max(0, n-1), v.err
	}
	return n, err
}

func (v *verifier) Close() error { return v.f.Close() }

func damaged(name string) error {
	return fmt.Errorf("blobs: %s: %w; put a copy in its place", name, record.ErrDamaged)
}

// whole reports whether the store has an undamaged blob with this digest. It reads each file that
// this store has not written once.
func (s *Store) whole(sum string) bool {
	s.mu.Lock()
	known := s.pendingLocked(sum) != "" || s.sound.has(sum)
	s.mu.Unlock()
	if known {
		return true
	}
	if fi, err := os.Lstat(s.path(sum)); err != nil || !fi.Mode().IsRegular() {
		return false
	}
	f, err := os.Open(s.path(sum))
	if err != nil {
		return false
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil || hexSum(h) != sum {
		return false
	}
	s.mu.Lock()
	s.sound.add(sum)
	s.mu.Unlock()
	return true
}

// Check reads a blob to its end. It returns nil if the blob is undamaged, fs.ErrNotExist if there
// is none, else ErrDamaged.
func (s *Store) Check(sum string) error {
	switch {
	case !valid(sum):
		return fmt.Errorf("blobs: %.80q is no SHA-256: %w", sum, fs.ErrNotExist)
	case s.whole(sum):
		return nil
	}
	if _, err := os.Lstat(s.path(sum)); err != nil {
		return fmt.Errorf("blobs: %w", err)
	}
	return damaged(s.path(sum))
}

// sound remembers undamaged blobs in a fixed amount of memory. With very many blobs it forgets
// some, which are then read again.
type sound struct{ slots []uint64 }

const soundSlots = 1 << 16

func (s *sound) has(sum string) bool {
	i, v := soundKey(sum)
	return s.slots != nil && s.slots[i] == v
}

func (s *sound) add(sum string) {
	if s.slots == nil {
		s.slots = make([]uint64, soundSlots)
	}
	i, v := soundKey(sum)
	s.slots[i] = v
}

// soundKey returns a slot and 64 other bits of a digest.
func soundKey(sum string) (int, uint64) {
	var b [16]byte
	if _, err := hex.Decode(b[:], []byte(sum[:32])); err != nil {
		return 0, 0
	}
	return int(binary.BigEndian.Uint64(b[8:]) % soundSlots), binary.BigEndian.Uint64(b[:8]) | 1
}
