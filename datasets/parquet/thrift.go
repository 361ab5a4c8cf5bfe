package parquet

import (
	"encoding/binary"
	"errors"
)

// Types of Thrift's compact protocol.
const (
	tTrue = iota + 1
	tFalse
	tI8
	tI16
	tI32
	tI64
	tDouble
	tBinary
	tList
	tSet
	tMap
	tStruct
	tUUID
)

// maxNesting is the maximum nesting of structures. The format itself needs 6 levels.
const maxNesting = 32

var errShort = errors.New("its metadata end in the middle")

// A thrift decodes Thrift's compact protocol, the encoding of a Parquet file's metadata. It never
// allocates by a size stated in the input before that much input is there. The first error is kept
// and ends all decoding.
type thrift struct {
	b     []byte
	depth int
	err   error
}

func (t *thrift) fail(err error) {
	if t.err == nil {
		t.err = err
	}
	t.b = nil
}

func (t *thrift) byte() byte {
	if len(t.b) == 0 {
		t.fail(errShort)
		return 0
	}
	c := t.b[0]
	t.b = t.b[1:]
	return c
}

func (t *thrift) uvarint() uint64 {
	x, n := binary.Uvarint(t.b)
	if n <= 0 {
		t.fail(errShort)
		return 0
	}
	t.b = t.b[n:]
	return x
}

// int decodes a number of a field or an element of type typ.
func (t *thrift) int(typ byte) int64 {
	switch typ {
	case tI8:
		return int64(int8(t.byte()))
	case tI16, tI32, tI64:
		x := t.uvarint()
		return int64(x>>1) ^ -int64(x&1)
	}
	t.fail(errors.New("its metadata hold something else where a number is due"))
	return 0
}

// bytes decodes a string or bytes. The result refers to the input.
func (t *thrift) bytes(typ byte) []byte {
	if typ != tBinary {
		t.fail(errors.New("its metadata hold something else where a text is due"))
		return nil
	}
	n := t.uvarint()
	if n > uint64(len(t.b)) {
		t.fail(errShort)
		return nil
	}
	b := t.b[:n]
	t.b = t.b[n:]
	return b
}

// fields calls f for each field of a structure of type typ. f must read or skip the field's value.
func (t *thrift) fields(typ byte, f func(id int, typ byte)) {
	if typ != tStruct {
		t.fail(errors.New("its metadata hold something else where a structure is due"))
		return
	}
	if t.depth++; t.depth > maxNesting {
		t.fail(errors.New("its metadata are nested too deep"))
	}
	defer func() { t.depth-- }()
	id := 0
	for t.err == nil {
		c := t.byte()
		if c == 0 {
			return
		}
		if delta := int(c >> 4); delta > 0 {
			id += delta
		} else {
			id = int(int16(t.int(tI16)))
		}
		if t.err == nil {
			f(id, c&15)
		}
	}
}

// list calls f for each element of a list of type typ. f must read or skip the element. list
// returns the number of elements.
func (t *thrift) list(typ byte, f func(typ byte)) int {
	if typ != tList && typ != tSet {
		t.fail(errors.New("its metadata hold something else where a list is due"))
		return 0
	}
	c := t.byte()
	n := uint64(c >> 4)
	if n == 15 {
		n = t.uvarint()
	}
	if n > uint64(len(t.b)) { // each element has at least one byte
		t.fail(errShort)
		return 0
	}
	for range n {
		if t.err != nil {
			return 0
		}
		f(c & 15)
	}
	return int(n)
}

// skip skips the value of a field.
func (t *thrift) skip(typ byte) {
	if typ == tTrue || typ == tFalse {
		return // the field's type is its value
	}
	t.skipElement(typ)
}

func (t *thrift) skipElement(typ byte) {
	switch typ {
	case tTrue, tFalse:
		t.byte()
	case tI8, tI16, tI32, tI64:
		t.int(typ)
	case tDouble:
		t.pass(8)
	case tUUID:
		t.pass(16)
	case tBinary:
		t.bytes(typ)
	case tStruct:
		t.fields(typ, func(_ int, typ byte) { t.skip(typ) })
	case tList, tSet, tMap:
		if t.depth++; t.depth > maxNesting {
			t.fail(errors.New("its metadata are nested too deep"))
		}
		if typ == tMap {
			t.skipMap()
		} else {
			t.list(typ, t.skipElement)
		}
		t.depth--
	default:
		t.fail(errors.New("its metadata hold a value of an unknown type"))
	}
}

func (t *thrift) skipMap() {
	n := t.uvarint()
	if n == 0 {
		return
	}
	types := t.byte()
	if n > uint64(len(t.b)) {
		t.fail(errShort)
	}
	for range n {
		if t.err != nil {
			return
		}
		t.skipElement(types >> 4)
		t.skipElement(types & 15)
	}
}

func (t *thrift) pass(n int) {
	if n > len(t.b) {
		t.fail(errShort)
		return
	}
	t.b = t.b[n:]
}
