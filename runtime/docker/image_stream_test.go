package docker

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// proto is a protobuf field with a length.
func proto(n byte, body ...[]byte) []byte {
	all := bytes.Join(body, nil)
	return append([]byte{n<<3 | 2, byte(len(all))}, all...)
}

func aux(t interface{ Fatal(...any) }, b []byte) json.RawMessage {
	raw, err := json.Marshal(base64.StdEncoding.EncodeToString(b))
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestTrace(t *testing.T) {
	var log bytes.Buffer
	var steps []string
	tr := newTrace(&log, func(s string) { steps = append(steps, s) })
	vertex := func(digest, name string, more ...[]byte) []byte {
		return proto(1, append([][]byte{proto(1, []byte(digest)), proto(3, []byte(name))}, more...)...)
	}
	started, completed := proto(5, []byte{8, 1}), proto(6, []byte{8, 1})
	out := func(digest, text string) []byte {
		return proto(3, proto(1, []byte(digest)), proto(4, []byte(text)))
	}
	for _, b := range [][]byte{
		vertex("a", "[internal] load"),
		vertex("a", "[internal] load", started),
		vertex("b", "[1/2] RUN x", started),
		out("b", "one\ntw"), out("b", "o\n"), out("nobody", "lost"), out("b", "\xff\n"),
		append(vertex("a", "[internal] load", started, completed, []byte{4 << 3, 1}),
			vertex("b", "[1/2] RUN x", started, completed, proto(7, []byte("exit code: 1")))...),
	} {
		tr.read(aux(t, b))
	}
	want := "#1 [internal] load\n#2 [1/2] RUN x\n#2 one\n#2 two\n#2 \ufffd\n#1 cached\n#2 failed: exit code: 1\n"
	if log.String() != want || strings.Join(steps, "|") != "[1/2] RUN x" {
		t.Errorf("got\n%s\nwant\n%s\nsteps %q", log.String(), want, steps)
	}
}

// Whatever an engine sends, nothing panics.
func TestTraceAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tr := newTrace(nil, nil)
		tr.read(aux(t, rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")))
		tr.read(aux(t, proto(1, rapid.SliceOfN(rapid.Byte(), 0, 100).Draw(t, "vertex"))))
	})
}
