package harness

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"
	"slices"
	"strings"
)

// Masked replaces a secret.
const Masked = "<secret>"

// MinSecret is the length in bytes of the shortest secret that is masked. Masking shorter values
// would make logs unreadable.
const MinSecret = 8

// A Masker replaces secret values in plain, JSON-escaped and base64 form, longest first. A nil
// Masker masks nothing. It is safe for concurrent use.
type Masker struct {
	values   [][]byte
	replacer *strings.Replacer
	longest  int
}

// NewMasker returns a Masker for the given values. Values shorter than MinSecret are ignored. It
// returns nil if no value is left.
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

// Has reports whether b contains a secret.
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

// Bytes returns b with its secrets masked. It returns b itself if there are none.
func (m *Masker) Bytes(b []byte) []byte {
	if !m.Has(b) {
		return b
	}
	return []byte(m.replacer.Replace(string(b)))
}

// JSON returns a JSON text with its secrets masked, as valid JSON. It returns b itself if there are
// none. A number or an object key that contains a secret becomes a string.
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
		// Invalid JSON: replace all of it, since the secrets in it cannot be found reliably.
		return []byte(`"` + Masked + `"`)
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

// String returns s with its secrets masked.
func (m *Masker) String(s string) string {
	if m == nil {
		return s
	}
	return m.replacer.Replace(s)
}

// Reader returns a reader that masks secrets in r, including those split across reads.
func (m *Masker) Reader(r io.Reader) io.Reader {
	if m == nil {
		return r
	}
	return &maskReader{m: m, r: r}
}

// complete returns how much of b can be masked before more of the text is known.
func (m *Masker) complete(b []byte) int {
	if m == nil {
		return len(b)
	}
	return m.around(b, max(0, len(b)-m.longest+1)) // a secret may begin in the last bytes
}

// around returns at, or the end of a secret in b that crosses it.
func (m *Masker) around(b []byte, at int) int {
	if m == nil {
		return at
	}
	for _, v := range m.values {
		lo := max(0, at-len(v)+1)
		hi := min(len(b), at+len(v)-1)
		if i := bytes.Index(b[lo:hi], v); i >= 0 && lo+i < at && lo+i+len(v) > at {
			at = lo + i + len(v)
		}
	}
	return at
}

type maskReader struct {
	m    *Masker
	r    io.Reader
	in   []byte // read but not yet masked
	out  []byte // masked but not yet returned
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
		cut := len(r.in)
		if err == nil {
			cut = r.m.complete(r.in)
		}
		if cut == 0 {
			continue
		}
		r.out = append(r.out[:0:0], r.m.Bytes(r.in[:cut])...)
		r.in = append(r.in[:0:0], r.in[cut:]...)
	}
	n := copy(p, r.out)
	r.out = r.out[n:]
	return n, nil
}
