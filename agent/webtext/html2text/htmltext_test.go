package html2text

import (
	"bufio"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"
)

// Texts that html2text itself made of small cases, one JSON object a line: {"name", "in", "out"}.
func TestCases(t *testing.T) { compare(t, "testdata/cases.jsonl") }

// The same of whole pages.
func TestPages(t *testing.T) {
	name := os.Getenv("EVALRUN_TEST_HTML2TEXT")
	if name == "" {
		t.Skip("EVALRUN_TEST_HTML2TEXT names no file: scripts/html2text makes one of a folder of recordings")
	}
	compare(t, name)
}

func compare(t *testing.T, name string) {
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 64<<20)
	n, equal := 0, 0
	for lines.Scan() {
		var c struct{ Name, In, Out string }
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			t.Fatal(err)
		}
		n++
		if got := Convert(c.In); got == c.Out {
			equal++
		} else if n-equal <= 20 {
			i := 0
			for i < min(len(got), len(c.Out)) && got[i] == c.Out[i] {
				i++
			}
			i = max(i-60, 0)
			t.Logf("%s, from byte %d:\n got %.200q\nwant %.200q", c.Name, i, got[i:], c.Out[i:])
		}
	}
	t.Logf("%d of %d texts are equal", equal, n)
	if n == 0 || equal < n {
		t.Errorf("%d texts differ", n-equal)
	}
}

// A page of n bytes takes time and room in proportion to n, whatever is in it.
func TestHostile(t *testing.T) {
	const n = 50_000
	for _, piece := range []string{"<blockquote>a", "<ul><li>a", "<ol><ul><li>a", "<a href=x>[", "<b>", "<pre>\n",
		"<table><tr><td>a", "<abbr title=x>a", "<a href=x><h1>a</h1>", "<!--", "<p a='", "&", "<", "</", "&#", "\\*",
		"1. \n", "</blockquote>", "</ul>", "</head>"} {
		in := strings.Repeat(piece, n)
		began := time.Now()
		out := Convert(in)
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("%q: %v", piece, took)
		}
		if len(out) > 1000*len(in) {
			t.Errorf("%q: %d bytes of %d", piece, len(out), len(in))
		}
	}
}

func FuzzConvert(f *testing.F) {
	f.Add("<p>a<b>c</b><a href=x>d</a>")
	f.Fuzz(func(t *testing.T, s string) { Convert(s) })
}

func BenchmarkConvert(b *testing.B) {
	in := strings.Repeat("<div bid=\"12\">\n <a href=\"http://x/\">\n  text &amp; more\n </a>\n</div>\n", 10_000)
	b.SetBytes(int64(len(in)))
	for b.Loop() {
		Convert(in)
	}
}
