package parquet

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/bits"
	"sync"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"

	"github.com/evalrun/evalrun/datasets/table"
)

// A guard limits the cost of one pass over a file.
type guard struct {
	limit    int64 // limit of unpacked and of values; 0 means none
	unpacked int64 // decompressed bytes of pages so far
	values   int64 // size of the values so far in bytes, plus one per value
	text     int64 // size of the rows so far as JSON lines, in bytes
	held     int64 // bytes of pages and dictionaries in memory now
}

func (g *guard) unpack(n int64) error {
	if g.unpacked += n; g.limit > 0 && g.unpacked > g.limit {
		return fmt.Errorf("unpacking: %w", table.TooLarge(g.limit))
	}
	return nil
}

func (g *guard) value(n int) error {
	if g.values += int64(n) + 1; g.limit > 0 && g.values > g.limit {
		return fmt.Errorf("its values: %w", table.TooLarge(g.limit))
	}
	return nil
}

func (g *guard) row(n int) error {
	if g.text += int64(n) + 1; g.limit > 0 && g.text > g.limit {
		return fmt.Errorf("its rows as text: %w", table.TooLarge(g.limit))
	}
	return nil
}

func (g *guard) hold(n int64) error {
	if g.held += n; g.held > MaxHeld {
		return fmt.Errorf("a page makes it %d MiB that have to be in memory at once, with those of the other "+
			"columns; at most %d MiB are: write the file with smaller pages", g.held>>20, MaxHeld>>20)
	}
	return nil
}

// Types of pages.
const (
	pageData       = 0
	pageIndex      = 1
	pageDictionary = 2
	pageDataV2     = 3
)

// A header precedes each page.
type header struct {
	at       int64 // offset of the page's body in the file
	kind     int64
	size     int64 // decompressed bytes of the body
	packed   int64 // bytes of the body in the file
	sum      int64
	summed   bool
	values   int64 // includes nulls
	rows     int64 // -1 if not stated
	encoding int64
	levels   [2]int64 // encodings of the repetition and definition levels
	lengths  [2]int64 // lengths of the levels, if they are stored apart from the values
	plain    bool     // the values are not compressed
}

// maxHeader is the size of the longest page header that is read. A header may contain the smallest
// and the largest value.
const maxHeader = 1 << 20

// A reader reads the values of one column of one row group.
type reader struct {
	file  io.ReaderAt
	end   int64 // upper bound of the offset at which the pages end
	col   *column
	chunk chunk
	guard *guard

	pos      int64 // offset of the next page
	left     int64 // values in the pages to come
	dictPage *header
	dict     *dictionary
	held     int64 // bytes of the page and the dictionary, as counted by the guard

	raw, body []byte // of the page; buffers are reused
	page      int64  // values left in the page
	rep, def  hybrid
	vals      values
	nextRep   uint32 // of the next value in the page, if repSeen is set
	repSeen   bool
}

func newReader(f io.ReaderAt, ft *footer, col int, c chunk, g *guard) *reader {
	return &reader{file: f, end: ft.end, col: &ft.cols[col], chunk: c, guard: g, pos: c.start, left: c.values}
}

// header reads the header of the next page with values. It remembers the header of a dictionary.
func (r *reader) header() (*header, error) {
	for {
		if r.left == 0 {
			return nil, io.EOF
		}
		h, err := r.readHeader()
		if err != nil {
			return nil, err
		}
		r.pos = h.at + h.packed
		switch h.kind {
		case pageDictionary:
			if r.dictPage == nil {
				r.dictPage = h
			}
		case pageData, pageDataV2:
			if h.values > r.left {
				return nil, fmt.Errorf("a page is said to have %d values, but %d are left in the row group", h.values,
					r.left)
			}
			r.left -= h.values
			return h, nil
		}
	}
}

func (r *reader) readHeader() (*header, error) {
	for size := int64(1 << 10); ; size *= 32 {
		size = min(size, maxHeader, r.end-r.pos)
		if size <= 0 {
			return nil, errors.New("its pages end before its values do")
		}
		if int64(cap(r.raw)) < size {
			r.raw = make([]byte, size)
		}
		b := r.raw[:size]
		if _, err := r.file.ReadAt(b, r.pos); err != nil {
			return nil, err
		}
		t := thrift{b: b}
		h := t.header()
		if t.err == errShort && size < maxHeader && size < r.end-r.pos {
			continue
		}
		if t.err != nil {
			return nil, fmt.Errorf("the header of a page is damaged: %w", t.err)
		}
		h.at = r.pos + size - int64(len(t.b))
		if h.size < 0 || h.packed < 0 || h.values < 0 || h.at+h.packed > r.end {
			return nil, errors.New("the header of a page is damaged: its sizes cannot be")
		}
		return h, nil
	}
}

func (t *thrift) header() *header {
	h := &header{kind: -1, size: -1, packed: -1, rows: -1}
	t.fields(tStruct, func(id int, typ byte) {
		switch id {
		case 1:
			h.kind = t.int(typ)
		case 2:
			h.size = t.int(typ)
		case 3:
			h.packed = t.int(typ)
		case 4:
			h.sum, h.summed = t.int(typ), true
		case 5, 7:
			t.fields(typ, func(id int, typ byte) {
				switch id {
				case 1:
					h.values = t.int(typ)
				case 2:
					h.encoding = t.int(typ)
				case 3:
					if typ == tTrue || typ == tFalse {
						return // of a dictionary: whether it is sorted
					}
					h.levels[1] = t.int(typ)
				case 4:
					h.levels[0] = t.int(typ)
				default:
					t.skip(typ)
				}
			})
		case 8:
			h.levels = [2]int64{encRLE, encRLE}
			t.fields(typ, func(id int, typ byte) {
				switch id {
				case 1:
					h.values = t.int(typ)
				case 3:
					h.rows = t.int(typ)
				case 4:
					h.encoding = t.int(typ)
				case 5:
					h.lengths[1] = t.int(typ)
				case 6:
					h.lengths[0] = t.int(typ)
				case 7:
					h.plain = typ == tFalse
				default:
					t.skip(typ)
				}
			})
		default:
			t.skip(typ)
		}
	})
	return h
}

// load reads and decompresses the page of a header.
func (r *reader) load(h *header) error {
	r.guard.held -= r.held
	r.held = 0
	hold := func(n int64) error { r.held += n; return r.guard.hold(n) }
	dictionary := h.encoding == encPlainDictionary || h.encoding == encDictionary
	if r.dict != nil {
		if err := hold(r.dict.cost()); err != nil {
			return err
		}
	} else if dictionary && r.dictPage != nil {
		d := r.dictPage
		// The dictionary's own copy and the offsets of its values.
		if err := hold(d.packed + d.size + 4*min(d.values, d.size/4)); err != nil {
			return fmt.Errorf("its dictionary: %w", err)
		}
		raw, err := r.read(make([]byte, 0, d.packed), d)
		if err == nil {
			var b []byte
			if b, err = r.unpack(nil, raw, d.size, d.plain); err == nil {
				r.dict, err = newDictionary(r.col, b, int(d.values))
			}
		}
		if err != nil {
			return fmt.Errorf("its dictionary: %w", err)
		}
	}
	if err := hold(max(h.packed, int64(cap(r.raw))) + max(h.size, int64(cap(r.body)))); err != nil {
		return err
	}
	raw, err := r.read(r.raw, h)
	if err != nil {
		return err
	}
	r.raw = raw[:0]
	levels, body := [2][]byte{}, []byte(nil)
	if h.kind == pageDataV2 {
		rep, def := h.lengths[0], h.lengths[1]
		if rep < 0 || def < 0 || rep+def > h.packed || rep+def > h.size {
			return errors.New("a page's levels are larger than the page")
		}
		levels[0], levels[1] = raw[:rep], raw[rep:rep+def]
		if body, err = r.unpack(r.body, raw[rep+def:], h.size-rep-def, h.plain); err != nil {
			return err
		}
		r.body = body[:0]
	} else {
		if body, err = r.unpack(r.body, raw, h.size, false); err != nil {
			return err
		}
		r.body = body[:0]
		for i, most := range [2]int{r.col.maxRep, r.col.maxDef} {
			if most == 0 {
				continue
			}
			if h.levels[i] != encRLE {
				return fmt.Errorf("levels in the encoding %d cannot be read", h.levels[i])
			}
			if len(body) < 4 {
				return errEnds
			}
			n := uint64(body[0]) | uint64(body[1])<<8 | uint64(body[2])<<16 | uint64(body[3])<<24
			if n > uint64(len(body)-4) {
				return errEnds
			}
			levels[i], body = body[4:4+n], body[4+n:]
		}
	}
	r.rep = hybrid{b: levels[0], width: uint(bits.Len(uint(r.col.maxRep)))}
	r.def = hybrid{b: levels[1], width: uint(bits.Len(uint(r.col.maxDef)))}
	r.page, r.repSeen = h.values, false
	r.vals, err = decode(r.col, h.encoding, body, int(h.values), r.dict)
	return err
}

func (d *dictionary) cost() int64 { return int64(len(d.b)) + 4*int64(len(d.at)) }

// read reads a page's body as stored in the file.
func (r *reader) read(buf []byte, h *header) ([]byte, error) {
	if int64(cap(buf)) < h.packed {
		buf = make([]byte, h.packed)
	}
	buf = buf[:h.packed]
	if _, err := r.file.ReadAt(buf, h.at); err != nil {
		return nil, err
	}
	if h.summed && crc32.ChecksumIEEE(buf) != uint32(h.sum) {
		return nil, errors.New("a page is damaged: its checksum is another one; fetch the file again")
	}
	return buf, nil
}

// unpack decompresses b to exactly size bytes, the size in the page's header. It never writes more,
// whatever b contains.
func (r *reader) unpack(buf, b []byte, size int64, plain bool) (out []byte, err error) {
	defer func() {
		if p := recover(); p != nil { // a panic of a decoder
			err = fmt.Errorf("unpacking a page: it is damaged: %v", p)
		}
	}()
	if err := r.guard.unpack(size); err != nil {
		return nil, err
	}
	codec := r.chunk.codec
	if plain {
		codec = 0
	}
	if codec != 0 && codec != 1 && int64(cap(buf)) < size {
		buf = make([]byte, size)
	}
	n := int64(0)
	switch {
	case codec == 0:
		buf, n = append(buf[:0], b...), int64(len(b))
	case size == 0 && len(b) == 0:
	case codec == 1: // Snappy
		var k int
		if k, err = snappy.DecodedLen(b); err != nil {
			break
		}
		if n = int64(k); n == size {
			if int64(cap(buf)) < size {
				buf = make([]byte, size)
			}
			buf, err = snappy.Decode(buf[:size], b)
		}
	case codec == 2: // gzip
		var z *gzip.Reader
		if z, err = gzip.NewReader(bytes.NewReader(b)); err == nil {
			n, err = exactly(z, buf[:size])
		}
	case codec == 4:
		n, err = exactly(brotli.NewReader(bytes.NewReader(b)), buf[:size])
	case codec == 6:
		var d *zstd.Decoder
		if d, err = unzstd(); err == nil {
			var made []byte
			made, err = d.DecodeAll(b, buf[:0:size])
			n = int64(len(made))
			if errors.Is(err, zstd.ErrDecoderSizeExceeded) {
				n, err = size+1, nil
			}
		}
	case codec == 7: // LZ4 block without a frame
		var k int
		k, err = lz4.UncompressBlock(b, buf[:size])
		n = int64(k)
		if errors.Is(err, lz4.ErrInvalidSourceShortBuffer) {
			n, err = size+1, nil
		}
	default:
		return nil, fmt.Errorf("it is packed in a way (%d) that cannot be read", codec)
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("unpacking a page: %w", err)
	case n > size:
		return nil, fmt.Errorf("a page unpacks to more than the %d bytes that its header says", size)
	case n < size:
		return nil, fmt.Errorf("a page unpacks to %d bytes; its header says %d", n, size)
	}
	return buf[:size], nil
}

// exactly fills b and checks whether there is more data.
func exactly(z io.Reader, b []byte) (int64, error) {
	n, err := io.ReadFull(z, b)
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return int64(n), nil
	}
	if err != nil {
		return 0, err
	}
	var more [1]byte
	switch k, err := io.ReadFull(z, more[:]); {
	case k > 0:
		return int64(n) + 1, nil
	case err != io.EOF:
		return 0, err
	}
	return int64(n), nil
}

var unzstd = sync.OnceValues(func() (*zstd.Decoder, error) {
	return zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecodeAllCapLimit(true),
		zstd.WithDecoderMaxMemory(MaxHeld))
})

// more makes sure that the page has a value left. It returns io.EOF at the end of the row group.
func (r *reader) more() error {
	for r.page == 0 {
		h, err := r.header()
		if err != nil {
			return err
		}
		if err := r.load(h); err != nil {
			return err
		}
	}
	return nil
}

// row reads the values of a row and calls each for those that are not null.
func (r *reader) row(each func(v *value) error) error {
	var v value
	for first := true; ; first = false {
		if err := r.more(); err != nil {
			if err == io.EOF && !first {
				return nil
			}
			return err
		}
		if r.col.maxRep > 0 {
			if err := r.peek(); err != nil {
				return err
			}
			if r.nextRep == 0 && !first {
				return nil
			}
			if r.nextRep != 0 && first {
				return errors.New("a page begins in the middle of a row that has no beginning")
			}
			r.repSeen = false
		}
		r.page--
		def := uint32(0)
		if r.col.maxDef > 0 {
			var err error
			if def, err = r.def.next(); err != nil {
				return err
			}
		}
		n := 0
		if def == uint32(r.col.maxDef) {
			if err := r.vals.next(&v); err != nil {
				return err
			}
			if n = r.col.width; r.col.kind == kindBytes {
				n = len(v.b)
			}
		}
		if err := r.guard.value(n); err != nil {
			return err
		}
		if def == uint32(r.col.maxDef) {
			if err := each(&v); err != nil {
				return err
			}
		}
		if r.col.maxRep == 0 {
			return nil
		}
	}
}

// peek reads the next value's repetition level, which is 0 at the start of a row.
func (r *reader) peek() (err error) {
	if !r.repSeen {
		r.nextRep, err = r.rep.next()
		r.repSeen = err == nil
	}
	return err
}

// skip skips rows. It does not decompress pages that contain no other rows, if they state their
// number of rows.
func (r *reader) skip(rows int64) error {
	if r.col.maxRep > 0 {
		return r.skipLists(rows)
	}
	for rows > 0 {
		if r.page == 0 {
			h, err := r.header()
			if err != nil {
				return err
			}
			if h.values <= rows {
				rows -= h.values
				continue
			}
			if err := r.load(h); err != nil {
				return err
			}
		}
		n := min(rows, r.page)
		full := int(n)
		if r.col.maxDef > 0 {
			var err error
			if full, err = r.def.skip(int(n), uint32(r.col.maxDef)); err != nil {
				return err
			}
		}
		if err := r.vals.skip(full); err != nil {
			return err
		}
		r.page -= n
		rows -= n
	}
	return nil
}

func (r *reader) skipLists(rows int64) error {
	for rows > 0 {
		if r.page == 0 {
			h, err := r.header()
			if err != nil {
				return err
			}
			if h.rows >= 0 && h.rows <= rows { // such a page starts and ends with a row
				rows -= h.rows
				continue
			}
			if err := r.load(h); err != nil {
				return err
			}
			continue // an empty page
		}
		if err := r.row(func(*value) error { return nil }); err != nil {
			return err
		}
		rows--
	}
	return nil
}

// close releases the memory of the reader in the guard's account.
func (r *reader) close() { r.guard.held -= r.held }
