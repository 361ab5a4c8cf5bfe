package obs_test

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/browsergym/obs"
)

// TestReferenceHTML compares texts of pages with those that BrowserGym's own functions made over
// lxml 5.4.0, libxml2 2.13.8 and bs4 4.15.0. The file is a sample of what `go run ./scripts/golden
// -do differential -sample browsergym/obs/testdata/html.jsonl.gz` compares.
func TestReferenceHTML(t *testing.T) {
	f, err := os.Open("testdata/html.jsonl.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for d := json.NewDecoder(z); ; {
		var s struct{ Kind, HTML, DOM, Prune string }
		if err := d.Decode(&s); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		seen[s.Kind]++
		if got := domText(t, s.HTML); got != s.DOM {
			t.Errorf("DOM text of %q:\n%s", s.HTML, firstDifference(got, s.DOM))
		}
		if got := obs.PruneHTML(s.HTML); got != s.Prune {
			t.Errorf("pruned text of %q:\n%s", s.HTML, firstDifference(got, s.Prune))
		}
	}
	for _, kind := range []string{"corners", "references", "numbers", "pairs", "random"} {
		if seen[kind] < 20 {
			t.Errorf("only %d pages are %s", seen[kind], kind)
		}
	}
}

// domText is the DOM text of a page that consists of HTML as it stands.
func domText(t *testing.T, html string) string {
	t.Helper()
	s := &obs.Snapshot{Strings: []string{html, "#text"}, Documents: make([]obs.Document, 1)}
	n := &s.Documents[0].Nodes
	n.NodeType, n.NodeName, n.NodeValue, n.ParentIndex = []int{3, 3}, []int{1, 1}, []int{-1, 0}, []int{-1, 0}
	text, err := obs.DOMText(s, nil, obs.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// An address keeps its query, in which names of characters may stand.
func TestAddressesWithQueries(t *testing.T) {
	s := &obs.Snapshot{Strings: []string{"HTML", "BODY", "A", "href", "/list?page=2&region=us&order=asc&section=4",
		"bid", "7", "#text", "next"}, Documents: make([]obs.Document, 1)}
	n := &s.Documents[0].Nodes
	n.NodeType, n.NodeName, n.NodeValue = []int{1, 1, 1, 3}, []int{0, 1, 2, 7}, []int{-1, -1, -1, 8}
	n.ParentIndex, n.Attributes = []int{-1, 0, 1, 2}, [][]int{{}, {}, {3, 4, 5, 6}, {}}
	text, err := obs.DOMText(s, nil, obs.Options{})
	if err != nil {
		t.Fatal(err)
	}
	const link = `<a bid="7" href="/list?page=2&amp;region=us&amp;order=asc&amp;section=4">`
	if !strings.Contains(text, link) {
		t.Errorf("DOM text:\n%s\nhas no %s", text, link)
	}
	if text = obs.PruneHTML(text); text != link+"\n next\n</a>\n" {
		t.Errorf("pruned:\n%s", text)
	}
}
