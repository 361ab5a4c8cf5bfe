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
// Some readers open a file more than once. DuckDB reads the footer when it plans a query, and opens
// the file by name again for the columns. If the file has been replaced in between, it reads the
// new file's bytes with the old file's footer ("TProtocolException: Invalid data"; seen with DuckDB
// 2.0, also with its caches disabled). Therefore row groups that a version has published stay at
// the same offset in all later versions:
//
//	version 1:  PAR1 | a |           footer (a)
//	version 2:  PAR1 | a | b |       footer (a, b)
//	version 3:  PAR1 | a | b | c |   footer (c)      c: the rows of a and b as one row group
//
// The footer of any version thus finds its row groups in any later file of that name, and a reader
// that holds it sees that version. Space that no footer refers to any more, such as a and b above,
// is reclaimed by pack when the run ends.
type part struct {
	groups []format.RowGroup
	end    int64 // offset of the footer, and of the next row group
}

const magic = "PAR1"

// live returns the number of bytes in row groups.
func (p *part) live() (n int64) {
	for i := range p.groups {
		begin, end := extent(&p.groups[i])
		n += end - begin
	}
	return n
}

// dead returns the number of bytes that no longer belong to a row group.
func (p *part) dead() int64 { return max(0, p.end-int64(len(magic))-p.live()) }

// extent returns the offsets of a row group in its file.
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

// moved returns g shifted by an offset. Page indexes are dropped, because they contain offsets
// themselves and no known reader requires them.
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

// A block holds rows as a separate Parquet file in memory.
type block struct {
	data []byte
	meta format.FileMetaData
}

// encode encodes rows as a block. Without rows it contains only the schema.
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

// add appends the row groups of b to p and returns their bytes.
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

// footer decodes the metadata at the end of a Parquet file and returns its offset.
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

// write writes a new version of the file at path: the data that body writes after the magic number,
// and the footer.
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

// grow returns a body for write: the content of the file at path up to kept, followed by added.
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

// load reads the state that a later version continues from.
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

// copyRange appends a range of the file at path to out, within the kernel if possible.
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

// pack rewrites the file at path without the space that no row group uses. It is called when a run
// ends: a reader that is active at this moment may fail, as described above.
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

// again returns how many of the small row groups at the end of a part stay unchanged when n rows
// are appended. Eight groups of similar size are merged into one, so that there are few groups and
// each row is rewritten only a few times in total.
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
