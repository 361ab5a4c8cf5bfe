package server

import (
	"bytes"
	"strconv"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/internal/execproto"
)

// Names are kept up to a number and to a number of bytes, and then said to lack.
func TestNamesAreBounded(t *testing.T) {
	var n names
	for i := range execproto.MaxLookups + 10 {
		n.add("/"+strconv.Itoa(i), execproto.Missing)
	}
	if len(n.all) != execproto.MaxLookups || n.why == "" {
		t.Errorf("%d names, %q", len(n.all), n.why)
	}
	if !n.add("/1", execproto.Found) || n.add("/1", execproto.Missing) || n.add("/proc/1", execproto.Found) {
		t.Error("a known name is news when something else happens to it, and only then")
	}
	n = names{}
	for i := range 100 {
		n.add("/"+strconv.Itoa(i)+strings.Repeat("x", 1<<20), execproto.Missing)
	}
	if n.bytes > execproto.MaxLookupBytes || n.why == "" {
		t.Errorf("%d bytes, %q", n.bytes, n.why)
	}
}

func TestLoader(t *testing.T) {
	for _, b := range [][]byte{nil, []byte("\x7fELF"), bytes.Repeat([]byte{0xff}, 200),
		append([]byte("\x7fELF\x02\x01"), bytes.Repeat([]byte{0xff}, 200)...)} {
		if name := loader(bytes.NewReader(b)); name != "" {
			t.Errorf("%q has the loader %q", b, name)
		}
	}
}
