package executor

import (
	"bytes"
	"errors"
	"reflect"
	"testing"

	"github.com/evalrun/evalrun/internal/execproto"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

func TestDecodeLookups(t *testing.T) {
	encode := func(list ...execproto.Lookup) (e execproto.Enc) {
		for _, l := range list {
			l.Encode(&e)
		}
		return e
	}
	all := encode(execproto.Lookup{Name: "/b", What: execproto.Found | execproto.Missing},
		execproto.Lookup{Name: "/a", What: execproto.Found | execproto.Listed},
		execproto.Lookup{Name: "/a", What: execproto.Executed | execproto.Found}, execproto.Lookup{})
	want := Lookups{Found: []string{"/a", "/b"}, Missing: []string{"/b"}, Listed: []string{"/a"},
		Executed: []string{"/a"}, Complete: true}
	if got := decodeLookups(all); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v", got)
	}
	for i := range len(all) - 1 {
		if l := decodeLookups(all[:i]); l.Complete || l.Why == "" {
			t.Errorf("the first %d bytes are complete", i)
		}
	}
	for what, b := range map[string]execproto.Enc{
		"bytes after the end": append(all, 1),
		"a relative name":     encode(execproto.Lookup{Name: "a", What: execproto.Found}, execproto.Lookup{}),
		"a name with ..":      encode(execproto.Lookup{Name: "/a/../b", What: execproto.Found}, execproto.Lookup{}),
		"nothing":             nil,
		"ones":                bytes.Repeat([]byte{0xff}, 100),
		"why":                 encode(execproto.Lookup{Name: "why"}),
	} {
		if l := decodeLookups(b); l.Complete || l.Why == "" {
			t.Errorf("%s: %+v", what, l)
		}
	}
}

// Only a sandbox that was created for it traces commands.
func TestTraceUnsupported(t *testing.T) {
	c, _ := boot(t).first(Config{Drop: true})
	_, _, err := c.Trace(t.Context(), sandbox.Command{Args: []string{"true"}})
	if !errors.As(err, new(*sandbox.Unsupported)) {
		t.Errorf("got %v", err)
	}
}
