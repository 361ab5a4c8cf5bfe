package blob

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

func open(t testing.TB, dir string, opts Options) *Store {
	t.Helper()
	s, err := Open(dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func put(t testing.TB, s *Store, content []byte) string {
	t.Helper()
	sum, size, err := s.Put(context.Background(), bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	if size != int64(len(content)) {
		t.Fatalf("size %d, want %d", size, len(content))
	}
	return sum
}

func get(t testing.TB, s *Store, sum string) []byte {
	t.Helper()
	r, err := s.Open(context.Background(), sum)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// files lists all files below dir.
func files(t testing.TB, dir string) []string {
	t.Helper()
	var out []string
	if err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			rel, _ := filepath.Rel(dir, name)
			out = append(out, rel)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestPutOpen(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "blobs")
	s := open(t, dir, Options{})
	ctx := t.Context()
	contents := [][]byte{nil, []byte("hello"), bytes.Repeat([]byte{0}, small-1), bytes.Repeat([]byte{1}, small),
		bytes.Repeat([]byte("0123456789"), 100_000)}
	var sums []string
	for _, c := range contents {
		sum := put(t, s, c)
		if put(t, s, c) != sum {
			t.Error("the same content has another name")
		}
		if !s.whole(sum) || !bytes.Equal(get(t, s, sum), c) {
			t.Errorf("%d bytes: not there before the sync", len(c))
		}
		sums = append(sums, sum)
	}
	if want := "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"; sums[1] != want {
		t.Errorf("sum of hello: %s", sums[1])
	}
	if err := s.Sync(ctx); err != nil {
		t.Fatal(err)
	}
	if got := files(t, dir); len(got) != len(contents) || strings.HasPrefix(got[0], tmp) {
		t.Errorf("files: %q", got)
	}
	if st := s.Stats(); st.Blobs != int64(len(contents)) {
		t.Errorf("stats: %+v", st)
	}
	for _, again := range []*Store{s, open(t, dir, Options{}), open(t, dir, Options{ReadOnly: true})} {
		for i, c := range contents {
			if !bytes.Equal(get(t, again, sums[i]), c) {
				t.Errorf("%d bytes: other content", len(c))
			}
		}
	}
	put(t, s, contents[1])
	if got := files(t, filepath.Join(dir, tmp)); len(got) != 0 {
		t.Errorf("content that was there left files: %q", got)
	}
}

func TestNotThere(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	for _, sum := range []string{"", "..", strings.Repeat("a", 64), strings.Repeat("A", 64),
		"../../../../../../etc/passwd" + strings.Repeat("0", 36)} {
		if _, err := s.Open(t.Context(), sum); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%q: %v", sum, err)
		}
		if s.Check(sum) == nil {
			t.Errorf("%q is there", sum)
		}
	}
	ro := open(t, t.TempDir(), Options{ReadOnly: true})
	if _, _, err := ro.Put(t.Context(), strings.NewReader("x")); err == nil {
		t.Error("a store that is only read took content")
	}
}

// A pipe in a blob's place is reported without blocking.
func TestNoFile(t *testing.T) {
	dir, sum := t.TempDir(), strings.Repeat("ab", 32)
	if err := os.MkdirAll(filepath.Join(dir, sum[:2]), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, sum[:2], sum[2:]), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := Open(dir, Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Open(t.Context(), sum); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Error(err)
	}
}

func TestSweep(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	put(t, s, []byte("never synced"))
	open(t, dir, Options{ReadOnly: true})
	if n := len(files(t, dir)); n != 1 {
		t.Errorf("%d files", n)
	}
	open(t, dir, Options{})
	if got := files(t, dir); len(got) != 0 {
		t.Errorf("not swept: %q", got)
	}
}

// What Sync acknowledged went through fsync, contents before names before folders. A failure is
// permanent.
func TestSyncOrder(t *testing.T) {
	dir := t.TempDir()
	var mu sync.Mutex
	var synced []string
	var fail error
	s := open(t, dir, Options{syncFile: func(name string) error {
		mu.Lock()
		defer mu.Unlock()
		synced = append(synced, name)
		return fail
	}})
	if err := s.Sync(t.Context()); err != nil || len(synced) != 0 {
		t.Errorf("with nothing new: %v, %q", err, synced)
	}
	sum := put(t, s, []byte("x"))
	if err := s.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(synced) != 3 || filepath.Base(filepath.Dir(synced[0])) != tmp {
		t.Errorf("synced: %q", synced)
	}
	put(t, s, []byte("x"))
	if err := s.Sync(t.Context()); err != nil || len(synced) != 3 {
		t.Errorf("the same once more: %v, %q", err, synced)
	}
	fail = errors.New("bad disk")
	other := put(t, s, []byte("y"))
	for range 2 {
		if err := s.Sync(t.Context()); !errors.Is(err, fail) {
			t.Errorf("%v", err)
		}
	}
	if _, _, err := s.Put(t.Context(), strings.NewReader("z")); !errors.Is(err, fail) {
		t.Errorf("put after a failure: %v", err)
	}
	get(t, s, sum)
	get(t, s, other)
	if _, err := os.Stat(s.path(other)); err == nil {
		t.Error("a blob that is not durable has its name")
	}
}

func TestPutStops(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	bad := errors.New("broken pipe")
	if _, _, err := s.Put(t.Context(), io.MultiReader(bytes.NewReader(make([]byte, 2*small)),
		errReader{bad})); !errors.Is(err, bad) {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(bad)
	if _, _, err := s.Put(ctx, strings.NewReader("x")); !errors.Is(err, bad) {
		t.Errorf("%v", err)
	}
	if got := files(t, dir); len(got) != 0 {
		t.Errorf("left: %q", got)
	}
}

type errReader struct{ err error }

func (r errReader) Read([]byte) (int, error) { return 0, r.err }

func TestConcurrent(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 30 {
				content := []byte(fmt.Sprintf("content %d", i+g%2*15))
				sum, _, err := s.Put(t.Context(), bytes.NewReader(content))
				if err == nil && i%4 == 0 {
					err = s.Sync(t.Context())
				}
				if err == nil {
					var r io.ReadCloser
					if r, err = s.Open(t.Context(), sum); err == nil {
						var got []byte
						got, err = io.ReadAll(r)
						r.Close()
						if !bytes.Equal(got, content) {
							t.Errorf("%q, want %q", got, content)
						}
					}
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if err := s.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := files(t, s.dir); len(got) != 45 {
		t.Errorf("%d files, want 45", len(got))
	}
}

func BenchmarkPut(b *testing.B) {
	for _, mode := range []string{"new", "known"} {
		b.Run(mode, func(b *testing.B) {
			s := open(b, b.TempDir(), Options{})
			content := bytes.Repeat([]byte("x"), 50<<10)
			for i := 0; b.Loop(); i++ {
				if mode == "new" {
					copy(content, fmt.Sprint(i))
				}
				put(b, s, content)
				if i%32 == 31 {
					if err := s.Sync(b.Context()); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}
