package parquetlog

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math/bits"
	"os"
	"path/filepath"
	"slices"

	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

// A part is a Parquet file that grows while others read it.
//
// Not all readers open a file once. DuckDB takes the footer when it plans a query, and opens the
// name again for the columns: where a file has been put in the place of another in between, it
// reads the new one's bytes by the old one's footer ("TProtocolException: Invalid data"; seen with
// DuckDB 2.0, also with its caches off). So what a version has shown stays where it is in all later
// versions:
//
//	version 1:  PAR1 | a |           footer (a)
//	version 2:  PAR1 | a | b |       footer (a, b)
//	version 3:  PAR1 | a | b | c |   footer (c)        where c holds the rows of a and b, as one row group
//
// A footer of any version then finds its row groups in any later file of that name, and whoever
// holds it sees that version. What no footer points to any more, as a and b above, is room that
// pack gives back when the run ends.
type part struct {
	groups []format.RowGroup
	end    int64 // where the footer begins, and the next row group
}

const magic = "PAR1"

// live is how many bytes the row groups take.
func (p *part) live() (n int64) {
	for i := range p.groups {
		begin, end := extent(&p.groups[i])
		n += end - begin
	}
	return n
}

// dead is how many bytes no longer belong to a row group.
func (p *part) dead() int64 { return max(0, p.end-int64(len(magic))-p.live()) }

// extent is where a row group lies in its file.
func extent(g *format.RowGroup) (begin, end int64) {
	for i := range g.Columns {
		m := &g.Columns[i].MetaData
		at := m.DataPageOffset
		if m.DictionaryPageOffset > 0 {
			at = min(at, m.DictionaryPageOffset)
		}
		if i == 0 || at < begin {
			begin = at
		}
		end = max(end, at+m.TotalCompressedSize)
	}
	return begin, end
}

// moved is g in another place. Page indexes do not move with it: they hold offsets themselves, and
// no reader that we know needs them.
func moved(g format.RowGroup, by int64) format.RowGroup {
	g.Columns = slices.Clone(g.Columns)
	for i := range g.Columns {
		c := &g.Columns[i]
		c.OffsetIndexOffset, c.OffsetIndexLength, c.ColumnIndexOffset, c.ColumnIndexLength = 0, 0, 0, 0
		for _, at := range []*int64{&c.FileOffset, &c.MetaData.DataPageOffset, &c.MetaData.IndexPageOffset,
			&c.MetaData.DictionaryPageOffset} {
			if *at > 0 {
				*at += by
			}
		}
	}
	if g.FileOffset > 0 {
		g.FileOffset += by
	}
	return g
}

// A block is rows as a Parquet file of their own, in memory.
type block struct {
	data []byte
	meta format.FileMetaData
}

// encode makes a block; of no rows it has a schema and nothing else.
func encode[T any](w encoder[T], rows []T) (block, error) {
	var buf bytes.Buffer
	w.Reset(&buf)
	if len(rows) > 0 {
		if _, err := w.Write(rows); err != nil {
			return block{}, err
		}
	}
	if err := w.Close(); err != nil {
		return block{}, err
	}
	b := block{data: buf.Bytes()}
	foot, err := footer(bytes.NewReader(b.data), int64(len(b.data)), &b.meta)
	if err != nil {
		return block{}, err
	}
	b.data = b.data[:foot]
	return b, nil
}

// add puts the row groups of b behind p's and returns their bytes.
func (p *part) add(b *block) []byte {
	from, to := int64(len(magic)), int64(len(magic))
	for i := range b.meta.RowGroups {
		_, end := extent(&b.meta.RowGroups[i])
		to = max(to, end)
	}
	for _, g := range b.meta.RowGroups {
		p.groups = append(p.groups, moved(g, p.end-from))
	}
	p.end += to - from
	return b.data[from:to]
}

// footer decodes the metadata at the end of a Parquet file, and says where it begins.
func footer(r io.ReaderAt, size int64, meta *format.FileMetaData) (int64, error) {
	var tail [8]byte
	if size < int64(len(magic)+len(tail)) {
		return 0, fmt.Errorf("a Parquet file of %d bytes", size)
	}
	if _, err := r.ReadAt(tail[:], size-8); err != nil {
		return 0, err
	}
	n := int64(binary.LittleEndian.Uint32(tail[:4]))
	if string(tail[4:]) != magic || n > size-12 {
		return 0, fmt.Errorf("not a Parquet file")
	}
	buf := make([]byte, n)
	if _, err := r.ReadAt(buf, size-8-n); err != nil {
		return 0, err
	}
	return size - 8 - n, thrift.Unmarshal(new(thrift.CompactProtocol), buf, meta)
}

// write makes a new version of the file at path: what body writes behind the magic number, and the
// footer.
func (p *part) write(path string, sync bool, meta format.FileMetaData, body func(out *os.File) error) (int64, error) {
	meta.NumRows, meta.RowGroups = 0, p.groups
	for i := range meta.RowGroups {
		meta.RowGroups[i].Ordinal = int16(i)
		meta.NumRows += meta.RowGroups[i].NumRows
	}
	foot, err := thrift.Marshal(new(thrift.CompactProtocol), &meta)
	if err != nil {
		return 0, err
	}
	foot = append(binary.LittleEndian.AppendUint32(foot, uint32(len(foot))), magic...)
	return replace(path, sync, func(out *os.File) error {
		if _, err := out.WriteString(magic); err != nil {
			return err
		}
		if err := body(out); err != nil {
			return err
		}
		_, err := out.Write(foot)
		return err
	})
}

// grow writes what the file at path holds before kept, then added.
func grow(path string, kept int64, added ...[]byte) func(*os.File) error {
	return func(out *os.File) error {
		if err := copyRange(out, path, int64(len(magic)), kept); err != nil {
			return err
		}
		for _, b := range added {
			if _, err := out.Write(b); err != nil {
				return err
			}
		}
		return nil
	}
}

// load reads what a later version has to go on from.
func (p *part) load(path string) (meta format.FileMetaData, size int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return meta, 0, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return meta, 0, err
	}
	if p.end, err = footer(f, st.Size(), &meta); err != nil {
		return meta, 0, fmt.Errorf("%s: %w", filepath.Base(path), err)
	}
	p.groups = meta.RowGroups
	return meta, st.Size(), nil
}

// copyRange appends bytes of the file at path to out, within the kernel where it can.
func copyRange(out *os.File, path string, from, to int64) error {
	if from >= to {
		return nil
	}
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	defer in.Close()
	if _, err := in.Seek(from, io.SeekStart); err != nil {
		return err
	}
	n, err := io.Copy(out, io.LimitReader(in, to-from))
	if err == nil && n < to-from {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// pack writes the file at path again without what no row group needs. It is for a run that ends:
// who reads the file in this very moment may be disturbed, see above.
func pack(path string) error {
	var old part
	meta, _, err := old.load(path)
	if err != nil || old.dead() == 0 {
		return err
	}
	next := part{end: int64(len(magic))}
	for i := range old.groups {
		begin, end := extent(&old.groups[i])
		next.groups = append(next.groups, moved(old.groups[i], next.end-begin))
		next.end += end - begin
	}
	_, err = next.write(path, true, meta, func(out *os.File) error {
		for i := range old.groups {
			begin, end := extent(&old.groups[i])
			if err := copyRange(out, path, begin, end); err != nil {
				return err
			}
		}
		return nil
	})
	return err
}

// again says how many of the small row groups at the end of a part stay as they are when n rows
// come behind them: eight of about the same size are written again as one, so that there are few,
// and each row is written a few times in all.
func again(small []int, n int) int {
	const several = 8
	size := func(n int) int { return bits.Len(uint(n)) / 3 }
	for k := len(small); ; {
		i, sum := k, n
		for i > 0 && size(small[i-1]) <= size(n) {
			i--
			sum += small[i]
		}
		if k-i < several-1 {
			return k
		}
		k, n = i, sum
	}
}
