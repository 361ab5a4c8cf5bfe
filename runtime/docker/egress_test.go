package docker

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
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
	if _, err := sb.Exec(ctx, sandbox.Command{Args: []string{"/bin/sh", "-c", text}, Stdout: &out,
		Timeout: time.Minute}); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out.String())
}

// The interface is opened by this process, where it is root of the engine's machine, or by the
// executor; nobody inside sees a difference.
func TestNetwork(t *testing.T) {
	t.Run("from here", func(t *testing.T) {
		d := require(t)
		if _, err := d.engine.api(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !d.here() {
			t.Skip("needs root, and the engine on this machine")
		}
		testNetwork(t, d)
		if d.tuns.far.Load() {
			t.Error("it was opened by the executor")
		}
	})
	t.Run("from inside", func(t *testing.T) {
		d := require(t)
		d.tuns.far.Store(true)
		testNetwork(t, d)
	})
	// What looks near and is not is found out by the first machine, which then has it from inside.
	t.Run("not from here", func(t *testing.T) {
		d := require(t)
		d.tuns.pid = os.Getpid()
		sb := open(t, d, sandbox.Spec{Image: sandbox.Image{Ref: "evalrun-test/bookworm:1"},
			Network: sandbox.Network{Mode: "public"}, Owner: sandbox.Self()})
		if ok, why := sb.(*box).Transparent(); !ok || sb.(*box).here {
			t.Errorf("%v %s", ok, why)
		}
		if os.Geteuid() == 0 && !d.tuns.far.Load() {
			t.Error("it will be tried again")
		}
		if got := d.Describe()["network"]; got != "" {
			t.Errorf("network: %s", got)
		}
		d.tuns.none.Store(true) // as after an engine's word that it has no such device
		if got := d.Describe()["network"]; got != "through the proxy only: the engine has no /dev/net/tun" {
			t.Errorf("network: %s", got)
		}
	})
}

func testNetwork(t *testing.T, d *Driver) {
	w := egresstest.New(t)
	old := gateOptions
	gateOptions.Resolver = w
	t.Cleanup(func() { gateOptions = old })
	serveHTTP(t, w.Listen(w.Addr(2), 80), "two")
	serveHTTP(t, w.Listen(w.Addr(3), 80), "three")
	w.Name("two.example", w.Addr(2))
	w.Name("three.example", w.Addr(3))
	sb, err := d.Create(t.Context(), sandbox.Spec{
		Owner: sandbox.Self(), Image: sandbox.Image{Ref: "evalrun-test/bookworm:1"}, Rewire: true,
		Network: sandbox.Network{Mode: "allow", Allow: []string{"two.example"}},
		Services: map[string]sandbox.Spec{
			"side": {Image: sandbox.Image{Ref: "evalrun-test/bookworm:1"},
				Cmd: []string{"python3", "-m", "http.server", "8080"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer sb.Close()
	if ok, why := sb.(*box).Transparent(); !ok {
		t.Fatal(why)
	}
	side, ok := sb.(sandbox.Group).Service("side")
	if !ok {
		t.Fatal("no service")
	}
	// Neither the device nor the capability is left.
	const netAdmin, netRaw = 12, 13
	for name, m := range map[string]sandbox.Sandbox{"main": sb, "side": side} {
		got := shell(t, m, "sed -n 's/^CapBnd:[[:space:]]*//p' /proc/self/status; ls /dev/net 2>/dev/null")
		if caps, err := strconv.ParseUint(got, 16, 64); err != nil || caps&(1<<netAdmin|1<<netRaw) != 0 {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
	for _, tt := range []struct{ cmd, want string }{
		{"curl -sS http://two.example/a", "two two.example /a 0"},
		{"curl -sS --noproxy '*' http://two.example/b", "two two.example /b 0"},
		{"curl -sS --noproxy '*' http://three.example/", "curl: (6) Could not resolve host: three.example"},
		{"curl -sS --socks5-hostname 127.0.0.1:61080 http://two.example/d", "two two.example /d 0"},
	} {
		for name, m := range map[string]sandbox.Sandbox{"main": sb, "side": side} { // one network, one policy
			if got := shell(t, m, tt.cmd+" 2>&1"); got != tt.want {
				t.Errorf("%s: %s: %s", name, tt.cmd, got)
			}
		}
	}
	// not by the proxy
	if got := shell(t, sb, "curl -s -o /dev/null -w '%{http_code}' http://side:8080/"); got != "200" {
		t.Errorf("the service: %s", got)
	}
	if err := sb.(sandbox.Rewirer).Rewire(t.Context(), sandbox.Network{Mode: "public"}); err != nil {
		t.Fatal(err)
	}
	if got := shell(t, sb, "curl -sS --noproxy '*' http://three.example/"); got != "three three.example / 0" {
		t.Error(got)
	}
	if got := fmt.Sprint(sb.(sandbox.RefusalLister).Refused()); got != "[{three.example 0 not on the list 4}]" {
		t.Error(got)
	}
	// Whoever takes it up again goes on with the policy that was in force, and may change it.
	again, err := New(Options{State: d.state}).Find(t.Context(), sb.ID())
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if got := shell(t, again, "curl -sS --noproxy '*' http://three.example/"); got != "three three.example / 0" {
		t.Errorf("found again: %s", got)
	}
	if err := again.(sandbox.Rewirer).Rewire(t.Context(), sandbox.Network{}); err != nil {
		t.Fatal(err)
	}
	if again, err = New(Options{State: d.state}).Find(t.Context(), sb.ID()); err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if got := shell(t, again, "curl -sS --noproxy '*' "+
		"http://three.example/ 2>&1"); got != "curl: (6) Could not resolve host: three.example" {
		t.Errorf("found once more: %s", got)
	}
}
