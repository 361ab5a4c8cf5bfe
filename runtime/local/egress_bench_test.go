package local

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

// BenchmarkNetwork moves 100 MB from and to a host, and makes connections, by both ways.
func BenchmarkNetwork(b *testing.B) {
	w := world(b)
	const size = 100 << 20
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "GET" && r.URL.Path == "/big" {
			w.Header().Set("Content-Length", fmt.Sprint(size))
			buf := make([]byte, 64<<10)
			for n := 0; n < size; n += len(buf) {
				w.Write(buf)
			}
			return
		}
		io.Copy(io.Discard, r.Body)
	})}
	go s.Serve(w.Listen(w.Addr(2), 80))
	defer s.Close()
	w.Name("two.example", w.Addr(2))
	sb := wiredBox(b, sandbox.Network{Mode: "allow", Allow: []string{"two.example"}})
	if out := script(b, sb, "head -c 104857600 /dev/zero >/tmp/big && echo ok"); out != "ok" {
		b.Fatal(out)
	}
	for _, way := range []struct{ name, flags string }{{"proxy", ""}, {"tunnel", "-p"},
		{"socks", "--socks5-hostname 127.0.0.1:61080"}, {"packets", "--noproxy '*'"}} {
		for _, what := range []struct{ name, script string }{
			{"download", "curl -sS -o /dev/null http://two.example/big"},
			{"upload", "curl -sS -T /tmp/big http://two.example/"},
		} {
			b.Run(what.name+"/"+way.name, func(b *testing.B) {
				b.SetBytes(size)
				for b.Loop() {
					if out := script(b, sb,
						strings.Replace(what.script, "curl ", "curl "+way.flags+" ", 1)+" 2>&1"); out != "" {
						b.Fatal(out)
					}
				}
			})
		}
	}
	// Connections: a request each, 200 in one process.
	for _, way := range []struct{ name, target string }{{"proxy", "127.0.0.1:61080"},
		{"packets", w.Addr(2).String() + ":80"}} {
		script(b, sb, "getent hosts two.example") // so that its address is known
		b.Run("connections/"+way.name, func(b *testing.B) {
			const n = 200
			host, port, _ := strings.Cut(way.target, ":")
			start := time.Now()
			rounds := 0
			for b.Loop() {
				out := script(b, sb, fmt.Sprintf(`python3 -c '
import socket
for i in range(%d):
    s = socket.create_connection(("%s", %s))
    s.sendall(b"GET http://two.example/ HTTP/1.1\r\nHost: two.example\r\nConnection: close\r\n\r\n")
    while s.recv(65536): pass
    s.close()
' 2>&1`, n, host, port))
				if out != "" {
					b.Fatal(out)
				}
				rounds++
			}
			b.ReportMetric(float64(rounds*n)/time.Since(start).Seconds(), "conns/s")
		})
	}
}

// BenchmarkNetworkStart is what a way out adds to a start.
func BenchmarkNetworkStart(b *testing.B) {
	world(b)
	d := New()
	defer d.Close()
	for _, n := range []sandbox.Network{{}, {Mode: "public"}} {
		b.Run(n.Mode, func(b *testing.B) {
			for b.Loop() {
				sb, err := d.Create(b.Context(), sandbox.Spec{Owner: sandbox.Self(), Network: n})
				if err != nil {
					b.Fatal(err)
				}
				sb.Close()
			}
		})
	}
}
