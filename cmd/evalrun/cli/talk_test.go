package cli

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A write waits for its reader for a while and then no more; what is read later comes in order,
// with a note of what was dropped.
func TestTalk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		talk := NewTalk(w)
		began := time.Now()
		for _, s := range []string{"one\n", "two\n", strings.Repeat("x", talkLimit), "three\n"} {
			if n, err := io.WriteString(talk, s); n != len(s) || err != nil {
				t.Errorf("%d, %v", n, err)
			}
		}
		talk.Flush()
		if d := time.Since(began); d != talkPatience {
			t.Errorf("the writes took %v", d)
		}
		var out bytes.Buffer
		read := make(chan struct{})
		go func() { io.Copy(&out, r); close(read) }()
		synctest.Wait()
		began = time.Now()
		io.WriteString(talk, "four\n") // it is read again, so this is written when it returns
		w.Close()
		<-read
		if want := "one\ntwo\nthree\nevalrun: 1048576 bytes are missing here: nobody read " +
			"them\nfour\n"; out.String() != want {
			t.Errorf("%q", out.String())
		}
		if time.Since(began) != 0 {
			t.Error("it waited, though all was read")
		}
		close(talk.wake)
	})
}
