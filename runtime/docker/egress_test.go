package docker

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/runtime/egress/egresstest"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

func serveHTTP(t testing.TB, l net.Listener, text string) {
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.Copy(io.Discard, r.Body)
		fmt.Fprintf(w, "%s %s %s %d\n", text, r.Host, r.URL.Path, b)
	})}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
}

func shell(t testing.TB, sb sandbox.Sandbox, text string) string {
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
	d := require(t)
	w := egresstest.New(t)
	old := gateOptions
	gateOptions.Resolver = w
	t.Cleanup(func() { gateOptions = old })
	serveHTTP(t, w.Listen(w.Addr(2), 80), "two")
	serveHTTP(t, w.Listen(w.Addr(3), 80), "three")
	w.Name("two.example", w.Addr(2))
	w.Name("three.example", w.Addr(3))
	sb, err := d.Create(t.Context(), sandbox.Spec{
		Owner: self(), Image: sandbox.Image{Ref: "evalrun-test/bookworm:1"}, Rewire: true,
		Network: sandbox.Network{Mode: "allow", Allow: []string{"two.example"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer sb.Close()
	if ok, why := sb.(*box).Transparent(); !ok {
		t.Fatal(why)
	}
	t.Log(shell(t, sb, "cat /etc/resolv.conf; env; ls -la /dev/net; grep Cap /proc/self/status; cat /proc/net/route /proc/net/if_inet6"))
	for _, tt := range []struct{ cmd, want string }{
		{"curl -sS http://two.example/a", "two two.example /a 0"},
		{"curl -sS --noproxy '*' http://two.example/b", "two two.example /b 0"},
		{"curl -sS --noproxy '*' http://three.example/", "curl: (6) Could not resolve host: three.example"},
		{"curl -sS --socks5-hostname 127.0.0.1:61080 http://two.example/d", "two two.example /d 0"},
	} {
		if got := shell(t, sb, tt.cmd); got != tt.want {
			t.Errorf("%s: %s", tt.cmd, got)
		}
	}
	if err := sb.(sandbox.Rewirer).Rewire(t.Context(), sandbox.Network{Mode: "public"}); err != nil {
		t.Fatal(err)
	}
	if got := shell(t, sb, "curl -sS --noproxy '*' http://three.example/"); got != "three three.example / 0" {
		t.Error(got)
	}
	t.Log(sb.(sandbox.Warden).Refused())
}
