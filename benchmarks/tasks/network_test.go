package tasks

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/datasets"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// A task cannot open this host's services or network to itself; the run's configuration can.
func TestPrivateNetwork(t *testing.T) {
	run := benchmarks.Options{Sandbox: sandbox.Spec{
		Network: sandbox.Network{Mode: "allow", Allow: []string{"127.0.0.1"}}}}
	for _, tt := range []struct {
		network Network
		o       benchmarks.Options
		skip    string
	}{
		{Network{"pypi.org", "*.debian.org"}, benchmarks.Options{}, ""},
		{Network{"public"}, benchmarks.Options{}, ""},
		{nil, benchmarks.Options{}, ""},
		{Network{"pypi.org", "127.0.0.1"}, benchmarks.Options{}, "opens 127.0.0.1, not public"},
		{Network{"10.0.0.0/8"}, benchmarks.Options{}, "opens 10.0.0.0/8, not public"},
		{Network{"http://x"}, benchmarks.Options{}, "http://x"},
		{Network{"127.0.0.1"}, run, ""},
	} {
		raw, err := json.Marshal(Task{ID: "t", Network: tt.network})
		if err != nil {
			t.Fatal(err)
		}
		n, err := new(Benchmark).Needs(datasets.Task{ID: "t", Data: raw}, tt.o)
		if err != nil {
			t.Fatal(err)
		}
		if (tt.skip == "") != (n.Skip == "") || !strings.Contains(n.Skip, tt.skip) {
			t.Errorf("%v: skipped for %q, want %q", tt.network, n.Skip, tt.skip)
		}
	}
}
