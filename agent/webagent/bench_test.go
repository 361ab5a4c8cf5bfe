package webagent

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/agenttest"
	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/webtext"
	"github.com/evalrun/evalrun/browsergym/action"
)

// recorded is the first observation of a recording, in a log.
func recorded(b *testing.B, name string) (*agenttest.Log, event.Browsed) {
	dir := os.Getenv("EVALRUN_GOLDEN")
	if dir == "" {
		b.Skip("EVALRUN_GOLDEN names no folder of recordings")
	}
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		b.Skip(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		b.Fatal(err)
	}
	lines := bufio.NewScanner(z)
	lines.Buffer(nil, 256<<20)
	lines.Scan()
	lines.Scan()
	var o struct {
		DOM   json.RawMessage `json:"dom_object"`
		AX    json.RawMessage `json:"axtree_object"`
		Props json.RawMessage `json:"extra_element_properties"`
	}
	if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
		b.Fatal(err)
	}
	log := &agenttest.Log{}
	put := func(raw []byte) *event.Blob {
		x, err := log.PutBlob(context.Background(), "application/json", bytes.NewReader(raw))
		if err != nil {
			b.Fatal(err)
		}
		return &x
	}
	return log, event.Browsed{URL: "http://site/", AX: put(o.AX), DOM: put(o.DOM), Properties: put(o.Props)}
}

var pages = map[string]string{"small": "miniwob/enter-text.1.jsonl.gz", "big": "recordings/big.jsonl.gz"}

// BenchmarkRequest is all that a step of the agent costs beside the model: blobs read, texts
// rendered, the prompt written.
func BenchmarkRequest(b *testing.B) {
	for size, name := range pages {
		b.Run(size, func(b *testing.B) {
			log, seen := recorded(b, name)
			set, err := action.New(action.Options{Subsets: []string{"miniwob_all"}})
			if err != nil {
				b.Fatal(err)
			}
			s := &stepper{set: set, options: action.Options{Subsets: []string{"miniwob_all"}}, limit: 40_000,
				now:     &seen,
				session: &agent.Session{Log: log, Goal: agent.Goal{Parts: event.Text("the goal")}}}
			n := 0
			for b.Loop() {
				req, err := s.request(b.Context())
				if err != nil {
					b.Fatal(err)
				}
				n = len(event.PlainText(req.Messages[1].Parts))
			}
			b.ReportMetric(float64(n), "bytes")
		})
	}
}

// BenchmarkText is the same for agents that work by tools.
func BenchmarkText(b *testing.B) {
	for size, name := range pages {
		b.Run(size, func(b *testing.B) {
			log, seen := recorded(b, name)
			for b.Loop() {
				if _, err := webtext.Look(log, seen).Text(b.Context(), webtext.TextOptions{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
