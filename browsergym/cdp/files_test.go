package cdp

import (
	"net/http"
	"net/http/httptest"
	"os"
	"sync/atomic"
	"testing"
	"time"
)

// The browser does not tell of the download of a page that closes just as its answer turns out to
// be one. It is found in the folder and ended; those that were told of are left alone.
func TestUntoldDownload(t *testing.T) {
	if os.Getenv("EVALRUN_TEST_BROWSER") == "" {
		t.Skip("needs a browser; set EVALRUN_TEST_BROWSER=1")
	}
	var sent atomic.Int64
	gone := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Disposition", "attachment; filename=endless")
		for r.Context().Err() == nil {
			n, err := w.Write(make([]byte, 1<<10))
			if err != nil {
				break
			}
			sent.Add(int64(n))
			w.(http.Flusher).Flush()
			time.Sleep(5 * time.Millisecond)
		}
		close(gone)
	}))
	defer s.Close()
	defer s.CloseClientConnections()
	b, err := Launch(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	c, err := b.NewContext(t.Context(), ContextOptions{Downloads: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	p, err := c.NewPage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p.Goto(t.Context(), s.URL) // a download is no page
	until := func(what string, done func() bool) {
		t.Helper()
		for limit := time.Now().Add(time.Minute); !done(); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(limit) {
				t.Fatalf("after a minute still not: %s", what)
			}
		}
	}
	until("it is in the folder", func() bool {
		files, err := os.ReadDir(c.opts.Downloads)
		return err == nil && len(files) == 1 && len(c.Downloads()) == 1
	})
	b.CancelUnreported()
	b.CancelUnreported()
	before := sent.Load()
	until("it goes on", func() bool { return sent.Load() > before+100<<10 })
	if d := c.Downloads(); d[0].State != "inProgress" {
		t.Fatalf("%+v", d)
	}

	c.mu.Lock()
	c.downloads = nil // as if nobody had told
	c.mu.Unlock()
	b.CancelUnreported()
	b.CancelUnreported()
	until("it has ended", func() bool {
		select {
		case <-gone:
			return true
		default:
			return false
		}
	})
}
