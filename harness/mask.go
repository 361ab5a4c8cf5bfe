package harness

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"
	"slices"
	"strings"
)

// Masked is what stands where a secret stood.
const Masked = "<secret>"

// MinSecret is the shortest value that is masked: a shorter one would shred the log.
const MinSecret = 8

// A Masker replaces secret values, in plain and JSON-escaped form and in base64, the longest first.
// The nil Masker masks nothing. It is safe for several goroutines.
type Masker struct {
	values   [][]byte
	replacer *strings.Replacer
	longest  int
}

// NewMasker masks the given values; those shorter than MinSecret are left alone.
func NewMasker(secrets ...string) *Masker {
	set := map[string]bool{}
	for _, s := range secrets {
		if len(s) < MinSecret {
			continue
		}
		set[s] = true
		if j, err := json.Marshal(s); err == nil {
			set[string(j[1:len(j)-1])] = true
		}
		set[base64.StdEncoding.EncodeToString([]byte(s))] = true
		set[base64.RawURLEncoding.EncodeToString([]byte(s))] = true
	}
	if len(set) == 0 {
		return nil
	}
	m := &Masker{}
	var pairs []string
	values := make([]string, 0, len(set))
	for s := range set {
		values = append(values, s)
	}
	slices.SortFunc(values, func(a, b string) int {
		if len(a) != len(b) {
			return len(b) - len(a)
		}
		return strings.Compare(a, b)
	})
	for _, s := range values {
		m.values = append(m.values, []byte(s))
		pairs = append(pairs, s, Masked)
		m.longest = max(m.longest, len(s))
	}
	m.replacer = strings.NewReplacer(pairs...)
	return m
}

// Has reports whether b holds a secret.
func (m *Masker) Has(b []byte) bool {
	if m == nil {
		return false
	}
	for _, v := range m.values {
		if bytes.Contains(b, v) {
			return true
		}
	}
	return false
}

// Bytes returns b without secrets; b itself when it has none.
func (m *Masker) Bytes(b []byte) []byte {
	if !m.Has(b) {
		return b
	}
	return []byte(m.replacer.Replace(string(b)))
}

// JSON returns a JSON text without secrets, which is JSON again; b itself when it has none. A
// number or a name in which a secret stands becomes a string.
func (m *Masker) JSON(b []byte) []byte {
	if !m.Has(b) {
		return b
	}
	if masked := m.Bytes(b); json.Valid(masked) {
		return masked
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	var x any
	if dec.Decode(&x) != nil {
		return []byte(`"` + Masked + `"`) // not JSON: nothing of it can be trusted to be clean
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if enc.Encode(m.value(x)) != nil {
		return []byte(`"` + Masked + `"`)
	}
	return bytes.TrimSpace(out.Bytes())
}

func (m *Masker) value(x any) any {
	switch x := x.(type) {
	case string:
		return m.String(x)
	case json.Number:
		if m.Has([]byte(x)) {
			return m.String(string(x))
		}
	case []any:
		for i := range x {
			x[i] = m.value(x[i])
		}
	case map[string]any:
		out := make(map[string]any, len(x))
		for k, v := range x {
			out[m.String(k)] = m.value(v)
		}
		return out
	}
	return x
}

// String returns s without secrets.
func (m *Masker) String(s string) string {
	if m == nil {
		return s
	}
	return m.replacer.Replace(s)
}

// Reader masks a stream; a secret that lies across two reads is found.
func (m *Masker) Reader(r io.Reader) io.Reader {
	if m == nil {
		return r
	}
	return &maskReader{m: m, r: r}
}

type maskReader struct {
	m    *Masker
	r    io.Reader
	in   []byte // read, not looked at whole
	out  []byte // masked, not handed on
	done error
}

func (r *maskReader) Read(p []byte) (int, error) {
	for len(r.out) == 0 {
		if r.done != nil {
			return 0, r.done
		}
		buf := make([]byte, 32<<10)
		n, err := r.r.Read(buf)
		r.in = append(r.in, buf[:n]...)
		r.done = err
		keep := r.m.longest - 1 // a secret may have begun here
		if err != nil {
			keep = 0
		}
		if len(r.in) <= keep {
			continue
		}
		cut := len(r.in) - keep
		// A whole secret may lie across the cut: move the cut behind it.
		for _, v := range r.m.values {
			lo := max(0, cut-len(v)+1)
			hi := min(len(r.in), cut+len(v)-1)
			if i := bytes.Index(r.in[lo:hi], v); i >= 0 && lo+i < cut && lo+i+len(v) > cut {
				cut = lo + i + len(v)
			}
		}
		r.out = append(r.out[:0:0], r.m.Bytes(r.in[:cut])...)
		r.in = append(r.in[:0:0], r.in[cut:]...)
	}
	n := copy(p, r.out)
	r.out = r.out[n:]
	return n, nil
}
