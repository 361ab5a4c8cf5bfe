package egress

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

// A proxy on this host reaches what is ours, and nothing else that is not public.
func TestServe(t *testing.T) {
	ours := httptest.NewServer(http.HandlerFunc(
		func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ours") }))
	defer ours.Close()
	other := httptest.NewServer(http.HandlerFunc(
		func(http.ResponseWriter, *http.Request) { t.Error("another server was reached") }))
	defer other.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var failed []string
	g, err := Serve(l, sandbox.Network{Mode: "public"},
		Options{Own: func(ctx context.Context, host string, port uint16) (net.Conn, bool, error) {
			switch host {
			case "site.test":
				c, err := (&net.Dialer{}).DialContext(ctx, "tcp", ours.Listener.Addr().String())
				return c, true, err
			case "broken.test":
				return nil, true, errors.New("it is broken")
			}
			return nil, false, nil
		}, Failed: func(host string, _ uint16, err error) {
			failed = append(failed, host)
			if denied := errors.As(err, new(*Denied)); denied != (host == "127.0.0.1") {
				t.Errorf("%s: %v", host, err)
			}
		}})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	for _, scheme := range []string{"http", "socks5h"} {
		client := http.Client{Transport: &http.Transport{
			Proxy: http.ProxyURL(&url.URL{Scheme: scheme, Host: l.Addr().String()})}}
		get := func(url string) string {
			resp, err := client.Get(url)
			if err != nil {
				return err.Error()
			}
			defer resp.Body.Close()
			b, _ := io.ReadAll(resp.Body)
			return string(b)
		}
		if s := get("http://Site.Test/"); s != "ours" {
			t.Errorf("%s: our own place: %q", scheme, s)
		}
		if s := get("http://broken.test/"); s == "ours" || strings.Contains(s, "policy") {
			t.Errorf("%s: a place of ours that is broken: %q", scheme, s)
		}
		get(other.URL)
		client.CloseIdleConnections()
	}
	refused := g.Refused()
	if len(refused) != 1 || refused[0].Host != "127.0.0.1" || refused[0].Count != 2 {
		t.Errorf("refused: %+v", refused)
	}
	if want := []string{"broken.test", "127.0.0.1", "broken.test", "127.0.0.1"}; !slices.Equal(failed, want) {
		t.Errorf("failed: %q", failed)
	}
	if _, err := Serve(l, sandbox.Network{Mode: "some"}, Options{}); err == nil {
		t.Error("a policy that is wrong was served")
	}
}
