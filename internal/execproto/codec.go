package execproto

import (
	"encoding/binary"
	"errors"
)

// ErrMalformed reports that a message does not have the form of its kind.
var ErrMalformed = errors.New("malformed message")

// An Enc encodes a message body. The zero value is ready to use.
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

// A Dec decodes a message body. After the first error every method returns a zero value, and Err
// returns the error. A Dec copies only what it returns and never allocates more than the length of
// the body.
type Dec struct {
	b   []byte
	bad bool
}

// NewDec returns a decoder of b. Decoded strings are copies.
func NewDec(b []byte) *Dec { return &Dec{b: b} }

// Err returns ErrMalformed after an error or if bytes are left.
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
	if n > uint64(len(d.b)) { // each string has at least one byte
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
