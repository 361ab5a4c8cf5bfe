package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

var (
	errEnds  = errors.New("the page ends before its values do")
	errPage  = errors.New("the page is damaged")
	errIndex = errors.New("a value is not in the column's dictionary")
)

// A value of a column: the bits of a number, or bytes that are valid until the next value is read.
type value struct {
	num uint64
	b   []byte
}

// values are the values of a page without nulls. They are decoded one at a time, so the decoded
// page is never in memory as a whole.
type values interface {
	next(v *value) error
	skip(n int) error
}

// skipEach skips values by reading them.
func skipEach(v values, n int) error {
	var x value
	for range n {
		if err := v.next(&x); err != nil {
			return err
		}
	}
	return nil
}

// A hybrid decodes numbers with a fixed number of bits, stored as runs of one value and as packed
// groups of eight.
type hybrid struct {
	b      []byte
	width  uint
	run    uint64 // values left in the run
	val    uint32 // value of the run
	packed uint64 // values left in the packed groups
	bit    uint64 // bit offset in b of the next packed value
	end    int    // byte offset in b of the end of the packed values
}

// fill starts the next run.
func (h *hybrid) fill() error {
	for h.run == 0 && h.packed == 0 {
		h.b, h.bit, h.end = h.b[h.end:], 0, 0
		x, n := binary.Uvarint(h.b)
		if n <= 0 {
			return errEnds
		}
		h.b = h.b[n:]
		if x&1 == 0 {
			size := int(h.width+7) / 8
			if size > len(h.b) {
				return errEnds
			}
			h.run, h.val = x>>1, 0
			for i := range size {
				h.val |= uint32(h.b[i]) << (8 * i)
			}
			if h.width < 32 && h.val>>h.width != 0 {
				return errPage
			}
			h.b = h.b[size:]
			continue
		}
		groups := x >> 1
		if groups > math.MaxInt32 {
			return errPage
		}
		h.packed, h.end = groups*8, int(groups)*int(h.width)
		if h.end > len(h.b) { // some writers leave out the padding of the last group
			h.end = len(h.b)
			h.packed = uint64(h.end) * 8 / uint64(h.width)
			if h.packed == 0 {
				return errEnds
			}
		}
	}
	return nil
}

func (h *hybrid) next() (uint32, error) {
	if h.run == 0 && h.packed == 0 {
		if err := h.fill(); err != nil {
			return 0, err
		}
	}
	if h.run > 0 {
		h.run--
		return h.val, nil
	}
	h.packed--
	x := bitsAt(h.b[:h.end], h.bit, h.width)
	h.bit += uint64(h.width)
	return uint32(x), nil
}

// skip skips n numbers and returns how many of them are x.
func (h *hybrid) skip(n int, x uint32) (same int, err error) {
	for n > 0 {
		if h.run == 0 && h.packed == 0 {
			if err := h.fill(); err != nil {
				return 0, err
			}
		}
		if h.run > 0 {
			k := min(h.run, uint64(n))
			h.run -= k
			n -= int(k)
			if h.val == x {
				same += int(k)
			}
			continue
		}
		y, err := h.next()
		if err != nil {
			return 0, err
		}
		if n--; y == x {
			same++
		}
	}
	return same, nil
}

// bitsAt returns width ≤ 57 bits of b starting at a bit, least significant first. Bits beyond b are
// 0.
func bitsAt(b []byte, bit uint64, width uint) uint64 {
	i := int(bit / 8)
	var x uint64
	if i+8 <= len(b) {
		x = binary.LittleEndian.Uint64(b[i:])
	} else {
		for k := 0; i+k < len(b); k++ {
			x |= uint64(b[i+k]) << (8 * k)
		}
	}
	return x >> (bit % 8) & (1<<width - 1)
}

// A fixed decodes consecutive values of a fixed width.
type fixed struct {
	b     []byte
	width int
	bytes bool // the values are bytes, not numbers
}

func (p *fixed) next(v *value) error {
	if len(p.b) < p.width {
		return errEnds
	}
	number(v, p.b[:p.width], p.bytes)
	p.b = p.b[p.width:]
	return nil
}

func number(v *value, b []byte, bytes bool) {
	switch {
	case bytes || len(b) == 12:
		v.b = b
	case len(b) == 4:
		v.num = uint64(binary.LittleEndian.Uint32(b))
	default:
		v.num = binary.LittleEndian.Uint64(b)
	}
}

func (p *fixed) skip(n int) error {
	if p.width > 0 && n > len(p.b)/p.width {
		return errEnds
	}
	p.b = p.b[n*p.width:]
	return nil
}

// A plainBytes decodes byte strings, each preceded by its length.
type plainBytes struct{ b []byte }

func (p *plainBytes) next(v *value) error {
	if len(p.b) < 4 {
		return errEnds
	}
	n := uint64(binary.LittleEndian.Uint32(p.b))
	if n > uint64(len(p.b)-4) {
		return errEnds
	}
	v.b, p.b = p.b[4:4+n], p.b[4+n:]
	return nil
}

func (p *plainBytes) skip(n int) error { return skipEach(p, n) }

// A plainBools decodes one bit per value.
type plainBools struct {
	b   []byte
	bit uint64
}

func (p *plainBools) next(v *value) error {
	if p.bit >= uint64(len(p.b))*8 {
		return errEnds
	}
	v.num = bitsAt(p.b, p.bit, 1)
	p.bit++
	return nil
}

func (p *plainBools) skip(n int) error { p.bit += uint64(n); return nil }

// A runBools decodes bits in runs.
type runBools struct{ h hybrid }

func (p *runBools) next(v *value) error {
	x, err := p.h.next()
	v.num = uint64(x)
	return err
}

func (p *runBools) skip(n int) error { _, err := p.h.skip(n, 0); return err }

// A dictionary holds a column's distinct values.
type dictionary struct {
	b     []byte
	n     int
	width int      // of a value; 0 means that offsets are used
	bytes bool     // the values are bytes, not numbers
	at    []uint32 // offset in b of each value's length
}

// newDictionary decodes a dictionary page. Its allocations are bounded by the page's size.
func newDictionary(c *column, b []byte, n int) (*dictionary, error) {
	d := &dictionary{b: b, n: n, width: c.width, bytes: c.kind == kindFixed}
	switch {
	case c.kind == kindBool:
		return nil, errors.New("a dictionary of booleans")
	case c.kind != kindBytes:
		if d.width > 0 && n > len(b)/d.width {
			return nil, errEnds
		}
		return d, nil
	}
	if n > len(b)/4 {
		return nil, errEnds
	}
	d.at = make([]uint32, 0, n)
	at := 0
	for range n {
		if len(b)-at < 4 {
			return nil, errEnds
		}
		d.at = append(d.at, uint32(at))
		k := uint64(binary.LittleEndian.Uint32(b[at:]))
		if k > uint64(len(b)-at-4) {
			return nil, errEnds
		}
		at += 4 + int(k)
	}
	return d, nil
}

func (d *dictionary) value(v *value, i uint32) error {
	if uint64(i) >= uint64(d.n) {
		return errIndex
	}
	if d.at == nil {
		number(v, d.b[int(i)*d.width:][:d.width], d.bytes)
		return nil
	}
	b := d.b[d.at[i]:]
	v.b = b[4 : 4+binary.LittleEndian.Uint32(b)]
	return nil
}

// An indexed decodes indices into a dictionary.
type indexed struct {
	h hybrid
	d *dictionary
}

func (p *indexed) next(v *value) error {
	i, err := p.h.next()
	if err != nil {
		return err
	}
	return p.d.value(v, i)
}

func (p *indexed) skip(n int) error { _, err := p.h.skip(n, 0); return err }

// A delta decodes integers that are stored as differences: blocks of miniblocks, each with its own
// bit width.
type delta struct {
	b      []byte
	block  int    // values per miniblock
	minis  int    // miniblocks per block
	left   uint64 // values left
	last   uint64
	first  bool   // last has not been returned yet
	least  uint64 // smallest difference in the block
	widths []byte // of the block's remaining miniblocks
	width  uint
	mini   int    // values left in the miniblock
	bit    uint64 // bit offset in b of the next value
	narrow bool   // 32 bits
}

func newDelta(b []byte, narrow bool) (*delta, error) {
	var head [4]uint64
	for i := range head {
		x, n := binary.Uvarint(b)
		if n <= 0 {
			return nil, errEnds
		}
		head[i], b = x, b[n:]
	}
	size, minis, total := head[0], head[1], head[2]
	if minis == 0 || size == 0 || size > 1<<20 || size%minis != 0 || size/minis%8 != 0 || total > math.MaxInt32 {
		return nil, errPage
	}
	return &delta{b: b, block: int(size / minis), minis: int(minis), left: total, last: unzigzag(head[3]), first: true,
		narrow: narrow}, nil
}

func unzigzag(x uint64) uint64 { return x>>1 ^ -(x & 1) }

func (p *delta) read() (uint64, error) {
	if p.left == 0 {
		return 0, errEnds
	}
	p.left--
	if p.first {
		p.first = false
		return p.last, nil
	}
	for p.mini == 0 {
		if err := p.open(); err != nil {
			return 0, err
		}
	}
	p.mini--
	d := bitsAt(p.b, p.bit, min(p.width, 32))
	if p.width > 32 {
		d |= bitsAt(p.b, p.bit+32, p.width-32) << 32
	}
	p.bit += uint64(p.width)
	p.last += p.least + d
	if p.narrow {
		p.last = uint64(int64(int32(p.last)))
	}
	return p.last, nil
}

// open starts the next miniblock.
func (p *delta) open() error {
	p.close()
	if len(p.widths) == 0 {
		x, n := binary.Uvarint(p.b)
		if n <= 0 || len(p.b)-n < p.minis {
			return errEnds
		}
		p.least = unzigzag(x)
		p.widths, p.b = p.b[n:n+p.minis], p.b[n+p.minis:]
	}
	p.width, p.widths = uint(p.widths[0]), p.widths[1:]
	if p.width > 64 || p.block/8*int(p.width) > len(p.b) && p.width > 0 &&
		uint64(len(p.b))*8/uint64(p.width) < min(p.left+1, uint64(p.block)) {
		return errEnds
	}
	p.mini = p.block
	return nil
}

// close skips the rest of the miniblock's bytes.
func (p *delta) close() {
	if p.bit > 0 || p.width > 0 {
		p.b = p.b[min(p.block/8*int(p.width), len(p.b)):]
	}
	p.bit, p.width = 0, 0
}

// end reads all remaining values and returns the data after them.
func (p *delta) end() ([]byte, error) {
	for p.left > 0 {
		if _, err := p.read(); err != nil {
			return nil, err
		}
	}
	p.close()
	return p.b, nil
}

func (p *delta) next(v *value) (err error) {
	v.num, err = p.read()
	return err
}

func (p *delta) skip(n int) error { return skipEach(p, n) }

// A deltaLengths decodes byte strings stored as all lengths followed by all contents.
type deltaLengths struct {
	lengths *delta
	b       []byte
}

func newDeltaLengths(b []byte, n int) (*deltaLengths, error) {
	lengths, rest, err := numbers(b, n)
	if err != nil {
		return nil, err
	}
	return &deltaLengths{lengths, rest}, nil
}

// numbers returns a decoder of the n integers at the start of b, and the data after them.
func numbers(b []byte, n int) (*delta, []byte, error) {
	p, err := newDelta(b, true)
	if err != nil {
		return nil, nil, err
	}
	if p.left > uint64(n) {
		return nil, nil, errPage
	}
	q := *p
	rest, err := q.end()
	return p, rest, err
}

func (p *deltaLengths) next(v *value) error {
	n, err := p.lengths.read()
	if err != nil {
		return err
	}
	if n > uint64(len(p.b)) {
		return errEnds
	}
	v.b, p.b = p.b[:n], p.b[n:]
	return nil
}

func (p *deltaLengths) skip(n int) error { return skipEach(p, n) }

// A deltaBytes decodes byte strings stored as the length of the prefix shared with the previous
// one, and the rest.
type deltaBytes struct {
	prefixes *delta
	rest     *deltaLengths
	last     []byte
	width    int // required length of each value; 0 means any
}

func newDeltaBytes(b []byte, n, width int) (*deltaBytes, error) {
	prefixes, behind, err := numbers(b, n)
	if err != nil {
		return nil, err
	}
	rest, err := newDeltaLengths(behind, n)
	return &deltaBytes{prefixes: prefixes, rest: rest, width: width}, err
}

func (p *deltaBytes) next(v *value) error {
	n, err := p.prefixes.read()
	if err != nil {
		return err
	}
	if err := p.rest.next(v); err != nil {
		return err
	}
	if n > uint64(len(p.last)) {
		return errPage
	}
	p.last = append(p.last[:n], v.b...)
	if v.b = p.last; p.width > 0 && len(v.b) != p.width {
		return errPage
	}
	return nil
}

func (p *deltaBytes) skip(n int) error { return skipEach(p, n) }

// A split decodes values stored as the first bytes of all values, then all second bytes, and so on.
type split struct {
	b     []byte
	n, i  int
	bytes bool
	buf   []byte
}

func newSplit(b []byte, width int, bytes bool) (*split, error) {
	if width == 0 || len(b)%width != 0 {
		return nil, errPage
	}
	return &split{b: b, n: len(b) / width, bytes: bytes, buf: make([]byte, width)}, nil
}

func (p *split) next(v *value) error {
	if p.i >= p.n {
		return errEnds
	}
	for k := range p.buf {
		p.buf[k] = p.b[k*p.n+p.i]
	}
	p.i++
	number(v, p.buf, p.bytes)
	return nil
}

func (p *split) skip(n int) error { p.i += n; return nil }

// Encodings of the format.
const (
	encPlain           = 0
	encPlainDictionary = 2
	encRLE             = 3
	encDelta           = 5
	encDeltaLengths    = 6
	encDeltaBytes      = 7
	encDictionary      = 8
	encSplit           = 9
)

// decode returns the values of a page's body; there are at most n.
func decode(c *column, encoding int64, b []byte, n int, d *dictionary) (values, error) {
	raw := c.kind == kindFixed
	switch encoding {
	case encPlain:
		switch c.kind {
		case kindBool:
			return &plainBools{b: b}, nil
		case kindBytes:
			return &plainBytes{b}, nil
		}
		return &fixed{b, c.width, raw}, nil
	case encPlainDictionary, encDictionary:
		if d == nil {
			return nil, errors.New("the column's dictionary is missing")
		}
		p := &indexed{d: d}
		if len(b) > 0 { // if empty, all values are null
			if b[0] > 32 {
				return nil, errPage
			}
			p.h = hybrid{b: b[1:], width: uint(b[0])}
		}
		return p, nil
	case encRLE:
		if c.kind == kindBool {
			if len(b) < 4 || uint64(binary.LittleEndian.Uint32(b)) > uint64(len(b)-4) {
				return nil, errEnds
			}
			return &runBools{hybrid{b: b[4:][:binary.LittleEndian.Uint32(b)], width: 1}}, nil
		}
	case encDelta:
		if c.kind == kindInt32 || c.kind == kindInt64 {
			return newDelta(b, c.kind == kindInt32)
		}
	case encDeltaLengths:
		if c.kind == kindBytes {
			return newDeltaLengths(b, n)
		}
	case encDeltaBytes:
		if c.kind == kindBytes || raw {
			return newDeltaBytes(b, n, c.width)
		}
	case encSplit:
		if c.kind != kindBool && c.kind != kindBytes {
			return newSplit(b, c.width, raw)
		}
	}
	return nil, fmt.Errorf("values of the type %s in the encoding %d cannot be read", kindNames[c.kind], encoding)
}
