package docker

import (
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/evalrun/evalrun/runtime/egress/egresstest"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// BenchmarkNetwork moves 100 MB from a host into a container, by both ways: through the proxy all
// of it goes through the engine's streams, and so do packets where the executor has opened the
// interface.
func BenchmarkNetwork(b *testing.B) {
	for _, far := range []bool{false, true} {
		name := "from here"
		if far {
			name = "from inside"
		}
		b.Run(name, func(b *testing.B) {
			d := require(b)
			d.tuns.far.Store(far)
			benchNetwork(b, d)
		})
	}
}

func benchNetwork(b *testing.B, d *Driver) {
	w := egresstest.New(b)
	old := gateOptions
	gateOptions.Resolver = w
	b.Cleanup(func() { gateOptions = old })
	const size = 100 << 20
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(size))
		io.CopyN(w, zeros{}, size)
	})}
	go s.Serve(w.Listen(w.Addr(2), 80))
	defer s.Close()
	w.Name("two.example", w.Addr(2))
	sb, err := d.Create(b.Context(), sandbox.Spec{
		Owner: sandbox.Self(), Image: sandbox.Image{Ref: "evalrun-test/bookworm:1"},
		Network: sandbox.Network{Mode: "allow", Allow: []string{"two.example"}},
	})
	if err != nil {
		b.Fatal(err)
	}
	defer sb.Close()
	for _, way := range []struct{ name, flags string }{{"proxy", ""}, {"packets", "--noproxy '*'"}} {
		b.Run(way.name, func(b *testing.B) {
			b.SetBytes(size)
			for b.Loop() {
				if out := shell(b, sb, "curl -sS "+way.flags+" -o /dev/null http://two.example/ 2>&1"); out != "" {
					b.Fatal(out)
				}
			}
		})
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }
