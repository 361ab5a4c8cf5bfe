package egress

import (
	"runtime"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

// BenchmarkIdle is the memory of a gate that nobody uses, and of one whose machine has used its
// interface once.
func BenchmarkIdle(b *testing.B) {
	heap := func() float64 {
		for range 3 {
			runtime.GC()
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc + m.StackInuse)
	}
	for _, used := range []bool{false, true} {
		name := "unused"
		if used {
			name = "used"
		}
		b.Run(name, func(b *testing.B) {
			const n = 50
			for b.Loop() {
				var gates []*Gate
				var guests []*guest
				for range n { // what stands in for the machines is there before
					guests = append(guests, newGuest(b))
				}
				web := newInternet()
				before := heap()
				for _, m := range guests {
					g := newGate(mustParse(b, sandbox.Network{Mode: "public"}), Options{Resolver: web, Dialer: web})
					g.serveProxy(newInside())
					g.serveLink(m)
					gates = append(gates, g)
					if used {
						m.ask("good.example.", dnsmessage.TypeA, false)
					}
				}
				b.ReportMetric((heap()-before)/n/1024, "KiB/gate")
				for _, g := range gates {
					g.Close()
				}
			}
		})
	}
}

func BenchmarkJudge(b *testing.B) {
	p := mustParse(b, allow("a.example", "*.b.example", "10.0.0.0/8", "93.184.216.0/24", "2a0e:b107::/32"))
	names := []string{"x.b.example"}
	addr := mustParse(b, allow("1.1.1.1")).prefixes[0].Addr()
	for b.Loop() {
		p.Addr(addr, names...)
	}
}
