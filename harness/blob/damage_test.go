package blob

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/harness/record"
)

// damage flips one bit in the middle of a durable blob.
func damage(t *testing.T, s *Store, sum string) {
	t.Helper()
	b, err := os.ReadFile(s.path(sum))
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 1
	if err := os.WriteFile(s.path(sum), b, 0o644); err != nil {
		t.Fatal(err)
	}
}

// Every way of reading a damaged blob returns an error that names the file.
func TestDamagedRead(t *testing.T) {
	ctx := context.Background()
	for _, size := range []int{1, 5, small - 1, small, 3 * small} {
		dir := t.TempDir()
		s := open(t, dir, Options{})
		content := bytes.Repeat([]byte("x"), size)
		sum, _, err := s.Put(ctx, bytes.NewReader(content))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Sync(ctx); err != nil {
			t.Fatal(err)
		}
		reads := map[string]func(io.Reader) error{
			"all":      func(r io.Reader) error { _, err := io.ReadAll(r); return err },
			"copied":   func(r io.Reader) error { _, err := io.Copy(io.Discard, r); return err },
			"just all": func(r io.Reader) error { _, err := io.ReadFull(r, make([]byte, size)); return err },
			"in parts": func(r io.Reader) error {
				for b := make([]byte, size/3+1); ; {
					if _, err := r.Read(b); err != nil {
						return err
					}
				}
			},
		}
		for _, readOnly := range []bool{false, true} {
			s := open(t, dir, Options{ReadOnly: readOnly})
			for name, read := range reads {
				r, err := s.Open(ctx, sum)
				if err != nil {
					t.Fatal(err)
				}
				if err := read(r); err != nil && err != io.EOF {
					t.Errorf("%d bytes, %s, whole: %v", size, name, err)
				}
				r.Close()
			}
		}
		damage(t, s, sum)
		for _, readOnly := range []bool{false, true} {
			s := open(t, dir, Options{ReadOnly: readOnly})
			for name, read := range reads {
				r, err := s.Open(ctx, sum)
				if err != nil {
					t.Fatal(err)
				}
				if err := read(r); !errors.Is(err, record.ErrDamaged) || !strings.Contains(err.Error(), s.path(sum)) {
					t.Errorf("%d bytes, %s: %v, want ErrDamaged with the file's name", size, name, err)
				}
				r.Close()
			}
		}
	}
}

// Put replaces a damaged blob, and checks an existing one only once.
func TestDamagedPut(t *testing.T) {
	ctx := context.Background()
	for _, size := range []int{1, small - 1, 2 * small} {
		content := bytes.Repeat([]byte("y"), size)
		for what, spoil := range map[string]func(t *testing.T, s *Store, sum string){
			"flipped": damage,
			"cut":     func(t *testing.T, s *Store, sum string) { os.Truncate(s.path(sum), int64(size/2)) },
			"longer": func(t *testing.T, s *Store, sum string) {
				os.WriteFile(s.path(sum), append(bytes.Clone(content), 'z'), 0o644)
			},
			"gone": func(t *testing.T, s *Store, sum string) { os.Remove(s.path(sum)) },
		} {
			dir := t.TempDir()
			s := open(t, dir, Options{})
			sum, _, err := s.Put(ctx, bytes.NewReader(content))
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Sync(ctx); err != nil {
				t.Fatal(err)
			}
			spoil(t, s, sum)
			s = open(t, dir, Options{}) // the next process
			for range 3 {
				again, n, err := s.Put(ctx, bytes.NewReader(content))
				if err != nil || again != sum || n != int64(size) {
					t.Fatalf("%s: %s, %d, %v", what, again, n, err)
				}
				if err := s.Sync(ctx); err != nil {
					t.Fatal(err)
				}
			}
			if got, err := os.ReadFile(s.path(sum)); err != nil || !bytes.Equal(got, content) {
				t.Errorf("%s, %d bytes: the same content was put again, and the file holds %d other bytes: %v", what,
					size, len(got), err)
			}
			if st := s.Stats(); st.Blobs != 1 {
				t.Errorf("%s, %d bytes: written %d times", what, size, st.Blobs)
			}
		}
	}
}
