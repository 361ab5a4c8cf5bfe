package sandbox_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

func TestCut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.Int64Range(0, 40).Draw(t, "limit")
		chunks := rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 30), 0, 12).Draw(t, "chunks")
		var got, all bytes.Buffer
		c := sandbox.NewCut(&got, limit)
		for _, p := range chunks {
			all.Write(p)
			if n, err := c.Write(p); n != len(p) || err != nil {
				t.Fatalf("Write: %d, %v", n, err)
			}
			if live := int64(got.Len()); limit > 0 && live > limit/2 {
				t.Fatalf("%d bytes handed on live, limit %d", live, limit)
			}
		}
		if err := c.Flush(); err != nil {
			t.Fatal(err)
		}
		want := all.String()
		if n := int64(all.Len()); limit > 0 && n > limit {
			want = fmt.Sprintf("%s\n[... %d bytes left out ...]\n%s", want[:limit/2], n-limit, want[n-(limit-limit/2):])
			if c.Dropped() != n-limit {
				t.Fatalf("Dropped is %d", c.Dropped())
			}
		}
		if got.String() != want || c.N() != int64(all.Len()) {
			t.Fatalf("got %q, want %q; counted %d of %d", got.String(), want, c.N(), all.Len())
		}
	})
}

type failing struct{ calls int }

func (f *failing) Write([]byte) (int, error) { f.calls++; return 0, errors.New("full") }

func TestCutCountsAfterAnError(t *testing.T) {
	w := new(failing)
	c := sandbox.NewCut(w, 10)
	for range 5 {
		c.Write([]byte("0123456789"))
	}
	if err := c.Flush(); err == nil || w.calls != 1 || c.N() != 50 {
		t.Errorf("error %v, %d calls, counted %d", err, w.calls, c.N())
	}
}
