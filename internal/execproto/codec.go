package execproto

import (
	"encoding/binary"
	"errors"
)

// ErrMalformed says that a message is not what its kind promises.
var ErrMalformed = errors.New("malformed message")

// An Enc builds a message body. The zero value is ready.
type Enc []byte

func (e *Enc) Uint(v uint64) { *e = binary.AppendUvarint(*e, v) }
func (e *Enc) Int(v int64)   { *e = binary.AppendVarint(*e, v) }
func (e *Enc) String(s string) {
	e.Uint(uint64(len(s)))
	*e = append(*e, s...)
}

func (e *Enc) Bool(b bool) {
	if b {
		e.Uint(1)
	} else {
		e.Uint(0)
	}
}

func (e *Enc) Strings(ss []string) {
	e.Uint(uint64(len(ss)))
	for _, s := range ss {
		e.String(s)
	}
}

// A Dec takes a message body apart. After the first failure every method returns a zero value; Err
// tells. It copies nothing that it does not return, and never allocates more than the body's own
// length.
type Dec struct {
	b   []byte
	bad bool
}

// NewDec reads b. Strings are copied out of it.
func NewDec(b []byte) *Dec { return &Dec{b: b} }

// Err is ErrMalformed after a failure, or when bytes are left.
func (d *Dec) Err() error {
	if d.bad || len(d.b) != 0 {
		return ErrMalformed
	}
	return nil
}

func (d *Dec) Uint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.bad, d.b = true, nil
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *Dec) Int() int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.bad, d.b = true, nil
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *Dec) Bool() bool { return d.Uint() != 0 }

func (d *Dec) String() string {
	n := d.Uint()
	if n > uint64(len(d.b)) {
		d.bad, d.b = true, nil
		return ""
	}
	s := string(d.b[:n])
	d.b = d.b[n:]
	return s
}

func (d *Dec) Strings() []string {
	n := d.Uint()
	if n > uint64(len(d.b)) { // each string takes a byte at least
		d.bad, d.b = true, nil
		return nil
	}
	if n == 0 {
		return nil
	}
	ss := make([]string, 0, n)
	for range n {
		ss = append(ss, d.String())
	}
	return ss
}
