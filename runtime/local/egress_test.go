package local

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/runtime/egress/egresstest"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// world makes hosts and lets all machines of this test see them.
func world(t testing.TB) *egresstest.World {
	t.Helper()
	if os.Getenv("EVALRUN_TEST_LOCAL") == "" {
		t.Skip("needs local sandboxes and hosts in a network namespace: set EVALRUN_TEST_LOCAL=1")
	}
	if os.Geteuid() != 0 {
		t.Skip("hosts in a network namespace need root")
	}
	w := egresstest.New(t)
	old := gateOptions
	gateOptions.Resolver = w
	t.Cleanup(func() { gateOptions = old })
	return w
}

func serve(t testing.TB, l net.Listener, text string) {
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.Copy(io.Discard, r.Body)
		fmt.Fprintf(w, "%s %s %s %d\n", text, r.Host, r.URL.Path, b)
	})}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
}

func wiredBox(t testing.TB, n sandbox.Network) sandbox.Sandbox {
	t.Helper()
	d := New()
	t.Cleanup(func() { d.Close() })
	sb, err := d.Create(t.Context(), sandbox.Spec{Owner: self(), Network: n, Rewire: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sb.Close() })
	return sb
}

func script(t testing.TB, sb sandbox.Sandbox, text string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var out bytes.Buffer
	if _, err := sb.Exec(ctx, sandbox.Command{Args: []string{"/bin/sh", "-c", text}, Stdout: &out, Timeout: time.Minute}); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out.String())
}

func TestNetwork(t *testing.T) {
	w := world(t)
	serve(t, w.Listen(w.Addr(2), 80), "two")
	serve(t, w.Listen(w.Addr(3), 80), "three")
	w.Name("two.example", w.Addr(2))
	w.Name("three.example", w.Addr(3))
	sb := wiredBox(t, sandbox.Network{Mode: "allow", Allow: []string{"two.example"}})
	if ok, why := sb.(*box).Transparent(); !ok {
		t.Fatal(why)
	}
	t.Log(script(t, sb, "ip addr; ip route; cat /etc/resolv.conf; env"))
	for _, tt := range []struct{ cmd, want string }{
		{"curl -sS http://two.example/a", "two two.example /a 0"},
		{"curl -sS --noproxy '*' http://two.example/b", "two two.example /b 0"},
		{"curl -sS -p http://two.example/c", "two two.example /c 0"},
		{"curl -sS --noproxy '*' http://three.example/", "curl: (6) Could not resolve host: three.example"},
		{"curl -sS --socks5-hostname 127.0.0.1:61080 http://two.example/d", "two two.example /d 0"},
	} {
		if got := script(t, sb, tt.cmd); got != tt.want {
			t.Errorf("%s: %s", tt.cmd, got)
		}
	}
	t.Log(sb.(*box).Refused())
}
