package parquet

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	pq "github.com/parquet-go/parquet-go"
	pqdelta "github.com/parquet-go/parquet-go/encoding/delta"
	pqthrift "github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"

	"github.com/evalrun/evalrun/datasets"
	"github.com/evalrun/evalrun/datasets/table"
)

// crafted is a file whose every byte a test decides: one row group with one column of required
// texts for each list of pages.
type crafted struct {
	rows    int64
	columns []craftedColumn
	edit    func(*format.FileMetaData)
}

type craftedColumn struct {
	codec format.CompressionCodec
	pages [][]byte // with their headers
}

func (c crafted) bytes(t testing.TB) []byte {
	t.Helper()
	m := format.FileMetaData{Version: 1, NumRows: c.rows, RowGroups: []format.RowGroup{{NumRows: c.rows}}}
	m.Schema = []format.SchemaElement{{Name: "root", NumChildren: pqthrift.New(int32(len(c.columns)))}}
	b := []byte("PAR1")
	for i, col := range c.columns {
		name := string(rune('a' + i))
		m.Schema = append(m.Schema, format.SchemaElement{Name: name, Type: pqthrift.New(format.ByteArray),
			RepetitionType: pqthrift.New(format.Required)})
		meta := format.ColumnMetaData{Type: format.ByteArray, PathInSchema: []string{name}, Codec: col.codec,
			NumValues: c.rows, DataPageOffset: int64(len(b))}
		for _, p := range col.pages {
			b = append(b, p...)
		}
		meta.TotalCompressedSize = int64(len(b)) - meta.DataPageOffset
		meta.TotalUncompressedSize = meta.TotalCompressedSize
		m.RowGroups[0].Columns = append(m.RowGroups[0].Columns, format.ColumnChunk{MetaData: meta})
	}
	if c.edit != nil {
		c.edit(&m)
	}
	return finish(b, marshal(t, m))
}

func finish(b, footer []byte) []byte {
	b = append(b, footer...)
	return append(binary.LittleEndian.AppendUint32(b, uint32(len(footer))), "PAR1"...)
}

func marshal(t testing.TB, v any) []byte {
	t.Helper()
	b, err := pqthrift.Marshal(new(pqthrift.CompactProtocol), v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// page is a data page of n values; size is what its header says of its unpacked body.
func page(t testing.TB, n int, encoding format.Encoding, body []byte, size int) []byte {
	h := format.PageHeader{Type: format.DataPage, UncompressedPageSize: int32(size),
		CompressedPageSize: int32(len(body))}
	h.DataPageHeader = pqthrift.New(format.DataPageHeader{NumValues: int32(n), Encoding: encoding,
		DefinitionLevelEncoding: format.RLE, RepetitionLevelEncoding: format.RLE})
	return append(marshal(t, h), body...)
}

func dictPage(t testing.TB, n int, body []byte, size int) []byte {
	h := format.PageHeader{Type: format.DictionaryPage, UncompressedPageSize: int32(size),
		CompressedPageSize: int32(len(body))}
	h.DictionaryPageHeader = pqthrift.New(format.DictionaryPageHeader{NumValues: int32(n)})
	return append(marshal(t, h), body...)
}

// texts are PLAIN values.
func texts(list ...string) (b []byte) {
	for _, s := range list {
		b = append(binary.LittleEndian.AppendUint32(b, uint32(len(s))), s...)
	}
	return b
}

// run are n indices x of some bits as one run.
func run(n, x int) []byte {
	return append(binary.AppendUvarint([]byte{8}, uint64(n)<<1), byte(x))
}

func save(t testing.TB, b []byte) *file {
	t.Helper()
	p := filepath.Join(t.TempDir(), "t.parquet")
	if err := os.WriteFile(p, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return Open(p).(*file)
}

// count reads all rows and returns how many there are, how much the heap held at most, and the
// first fatal error.
func count(t testing.TB, f table.File) (n int, heap uint64, fatal error) {
	var m runtime.MemStats
	look := func() {
		runtime.ReadMemStats(&m)
		heap = max(heap, m.HeapAlloc)
	}
	for _, err := range f.Rows(t.Context()) {
		if errors.As(err, new(*datasets.Fatal)) {
			look()
			return n, heap, err
		}
		if n++; n%50000 == 0 {
			look()
		}
	}
	look()
	return n, heap, nil
}

// Three million short rows in one page are read one by one, as are those of a column that is one
// run.
func TestManyShortRows(t *testing.T) {
	const n = 3_000_000
	r := rand.NewChaCha8([32]byte{})
	packed := make([]byte, n/8*3)
	r.Read(packed)
	indices := append(binary.AppendUvarint([]byte{3}, n/8<<1|1), packed...)
	dict := texts("q0", "q1", "q2", "q3", "q4", "q5", "q6", "q7")
	zip := func(b []byte) []byte { z, _ := pq.Zstd.Encode(nil, b); return z }
	f := save(t, crafted{rows: n, columns: []craftedColumn{
		{format.Zstd, [][]byte{dictPage(t, 8, zip(dict), len(dict)),
			page(t, n, format.RLEDictionary, zip(indices), len(indices))}},
		{format.Uncompressed, [][]byte{dictPage(t, 8, dict, len(dict)),
			page(t, n, format.RLEDictionary, run(n, 7), len(run(n, 7)))}},
	}}.bytes(t))
	got, heap, err := count(t, f)
	if got != n || err != nil || heap > 64<<20 {
		t.Errorf("%d rows, %v; the heap held %d MiB", got, err, heap>>20)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for _, i := range []int64{n - 1, 5, 6, 7, n / 2} {
		row, err := f.At(t.Context(), table.Row{Pos: i})
		bit := int(i) * 3
		want := (int(packed[bit/8]) | int(append(packed, 0)[bit/8+1])<<8) >> (bit % 8) & 7
		if string(row.Data) != fmt.Sprintf(`{"a":"q%d","b":"q7"}`, want) {
			t.Errorf("row %d: %s, %v", i, row.Data, err)
		}
	}
	if runtime.ReadMemStats(&after); after.TotalAlloc-before.TotalAlloc > 64<<20 {
		t.Errorf("reading five rows again allocates %d MiB", (after.TotalAlloc-before.TotalAlloc)>>20)
	}
}

// No file makes more of itself than its size and the limits allow, and each says where it lies.
func TestBombs(t *testing.T) {
	zeros := make([]byte, 24<<20)
	one := texts("x")
	col := func(codec format.CompressionCodec, pages ...[]byte) crafted {
		return crafted{rows: 1, columns: []craftedColumn{{codec, pages}}}
	}
	type test struct {
		file  crafted
		limit int64 // 0: the usual one
		want  string
	}
	xs := bytes.Repeat([]byte("x"), 300<<10)
	prefixed, offsets := []byte(nil), []uint32{0}
	for range 100 {
		prefixed = append(prefixed, xs...)
		offsets = append(offsets, uint32(len(prefixed)))
	}
	deltas, err := new(pqdelta.ByteArrayEncoding).EncodeByteArray(nil, prefixed, offsets)
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]test{
		"a dictionary that says what it is": {
			file: col(format.Zstd, dictPage(t, 1, []byte{1}, 1200<<20), page(t, 1, format.RLEDictionary, nil, 0)),
			want: `column "a" of row group 1: its dictionary: a page makes it 1200 MiB`},
		"a page that says what it is": {file: col(format.Gzip, page(t, 1, format.Plain, []byte{1}, 1200<<20)),
			want: `column "a" of row group 1: a page makes it 1200 MiB`},
		"a page of more values": {
			file: col(format.Uncompressed, page(t, math.MaxInt32, format.Plain, one, len(one))),
			want: "said to have 2147483647 values, but 1 are left"},
		"a dictionary of more values": {
			file: col(format.Uncompressed, dictPage(t, math.MaxInt32, one, len(one)),
				page(t, 1, format.RLEDictionary, run(1, 0), 3)),
			want: "its dictionary: the page ends before its values do"},
		"many times one long text": {limit: 8 << 20, want: "its values: it is more than 8 MiB",
			file: crafted{rows: 1e6, columns: []craftedColumn{{format.Uncompressed,
				[][]byte{dictPage(t, 1, texts(strings.Repeat("x", 1<<20)), 4+1<<20),
					page(t, 1e6, format.RLEDictionary, run(1e6, 0), len(run(1e6, 0)))}}}}},
		"many times one short text": {limit: 8 << 20, want: "its rows as text: it is more than 8 MiB",
			file: crafted{rows: 2e6, columns: []craftedColumn{{format.Uncompressed,
				[][]byte{dictPage(t, 1, texts(""), 4),
					page(t, 2e6, format.RLEDictionary, run(2e6, 0), len(run(2e6, 0)))}}}}},
		"texts that begin with each other": {limit: 8 << 20, want: "its values: it is more than 8 MiB",
			file: crafted{rows: 100, columns: []craftedColumn{{format.Uncompressed,
				[][]byte{page(t, 100, format.DeltaByteArray, deltas, len(deltas))}}}}},
		"rows that are said": {want: "1000000000000 rows", file: crafted{rows: 1e12, columns: []craftedColumn{{}}}},
		"bytes that are said": {want: `it is more than 1024 MiB, far more than the file's size lets expect; most of it is column "b"`, file: crafted{rows: 1, columns: []craftedColumn{{pages: [][]byte{one}}, {pages: [][]byte{one}}}, edit: func(m *format.FileMetaData) {
			m.RowGroups[0].Columns[1].MetaData.TotalUncompressedSize = math.MaxInt64
		}}},
		"columns": {want: "it has 20000 columns; at most 1000 are read",
			file: crafted{edit: func(m *format.FileMetaData) {
				for range 20000 {
					m.Schema = append(m.Schema, format.SchemaElement{Name: "c", Type: pqthrift.New(format.Int32)})
				}
			}}},
	}
	for name, codec := range map[string]interface {
		Encode(dst, src []byte) ([]byte, error)
		CompressionCodec() format.CompressionCodec
	}{"snappy": &pq.Snappy, "gzip": &pq.Gzip, "brotli": &pq.Brotli, "zstd": &pq.Zstd, "lz4": &pq.Lz4Raw} {
		b, err := codec.Encode(nil, zeros)
		if err != nil {
			t.Fatal(err)
		}
		tests["a "+name+" page that lies"] = test{file: col(codec.CompressionCodec(), page(t, 1, format.Plain, b, 100)),
			want: "more than the 100 bytes that its header says"}
		tests["a "+name+" dictionary that lies"] = test{
			file: col(codec.CompressionCodec(), dictPage(t, 1, b, 100), page(t, 1, format.RLEDictionary, nil, 0)),
			want: "its dictionary: a page unpacks to"}
		tests["a "+name+" page that has less"] = test{
			file: col(codec.CompressionCodec(), page(t, 1, format.Plain, b, len(zeros)+1)),
			want: "unpacks to 25165824 bytes; its header says 25165825"}
	}
	for name, c := range tests {
		t.Run(name, func(t *testing.T) {
			f := save(t, c.file.bytes(t))
			if c.limit > 0 {
				_, ft, err := f.open()
				if err != nil {
					t.Fatal(err)
				}
				ft.limit = c.limit
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, _, err := count(t, f)
			runtime.ReadMemStats(&after)
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), f.disk.Name) {
				t.Errorf("%v, want %q", err, c.want)
			}
			bound := uint64(20 << 20)
			if strings.Contains(name, "less") {
				bound += uint64(len(zeros)) // that is allowed
			}
			if grew := after.TotalAlloc - before.TotalAlloc; grew > bound && c.limit == 0 {
				t.Errorf("%d MiB were allocated", grew>>20)
			}
		})
	}
}

// Metadata that cannot be are told.
func TestDamagedMetadata(t *testing.T) {
	one := texts("x")
	good := crafted{rows: 1, columns: []craftedColumn{{pages: [][]byte{page(t, 1, format.Plain, one, len(one))}}}}
	if n, _, err := count(t, save(t, good.bytes(t))); n != 1 || err != nil {
		t.Fatalf("%d rows, %v", n, err)
	}
	for name, c := range map[string]struct {
		edit func(m *format.FileMetaData)
		want string
	}{
		"negative rows": {func(m *format.FileMetaData) { m.RowGroups[0].NumRows = -1 },
			"damaged: row group 1 is said to have -1 rows"},
		"negative values": {func(m *format.FileMetaData) { m.RowGroups[0].Columns[0].MetaData.NumValues = -5 },
			`its column "a" -5 values`},
		"negative bytes": {func(m *format.FileMetaData) {
			m.RowGroups[0].Columns[0].MetaData.TotalUncompressedSize = -5
		}, "said to be -5 bytes"},
		"other values": {func(m *format.FileMetaData) { m.RowGroups[0].Columns[0].MetaData.NumValues = 2 },
			`has 1 rows, but its column "a" 2 values`},
		"outside": {func(m *format.FileMetaData) {
			m.RowGroups[0].Columns[0].MetaData.DataPageOffset = 1 << 40
		}, "outside of the pages"},
		"before": {func(m *format.FileMetaData) { m.RowGroups[0].Columns[0].MetaData.DataPageOffset = -9 },
			"outside of the pages"},
		"no chunk": {func(m *format.FileMetaData) { m.RowGroups[0].Columns = nil },
			"row group 1 has 0 columns, the schema 1"},
		"two chunks": {func(m *format.FileMetaData) {
			m.RowGroups[0].Columns = append(m.RowGroups[0].Columns, m.RowGroups[0].Columns[0])
		}, "more columns than the schema"},
		"children": {func(m *format.FileMetaData) { m.Schema[0].NumChildren.V = 9 },
			"its schema ends in the middle"},
		"children for ever": {func(m *format.FileMetaData) { m.Schema[0].NumChildren.V = math.MaxInt32 },
			"its schema ends in the middle"},
		"no columns": {func(m *format.FileMetaData) { m.Schema = m.Schema[:1]; m.RowGroups = nil },
			"its schema ends in the middle"},
		"no schema": {func(m *format.FileMetaData) { m.Schema = nil; m.RowGroups = nil }, "it has no schema"},
		"two of a name": {func(m *format.FileMetaData) {
			m.Schema[0].NumChildren.V = 2
			m.Schema = append(m.Schema, m.Schema[1])
			m.RowGroups = nil
		}, `two columns called "a"`},
		"codec": {func(m *format.FileMetaData) { m.RowGroups[0].Columns[0].MetaData.Codec = 99 },
			"packed in a way (99)"},
		"columns of elsewhere": {func(m *format.FileMetaData) { m.RowGroups[0].Columns[0].FilePath = "/etc/passwd" },
			"its columns stand in other files"},
		"more rows": {func(m *format.FileMetaData) {
			m.RowGroups[0].NumRows = 2
			m.RowGroups[0].Columns[0].MetaData.NumValues = 2
		}, `column "a" of row group 1: `},
	} {
		file := good
		file.edit = c.edit
		_, _, err := count(t, save(t, file.bytes(t)))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	nested := bytes.Repeat([]byte{0x1c}, 1<<20)              // a structure in a structure in …
	huge := []byte{0x29, 0xfc, 0xff, 0xff, 0xff, 0xff, 0x0f} // a list of 4 G structures
	whole := good.bytes(t)
	for name, c := range map[string]struct {
		file []byte
		want string
	}{
		"nested":    {finish([]byte("PAR1"), nested), "nested too deep"},
		"a list":    {finish([]byte("PAR1"), huge), "end in the middle"},
		"cut short": {whole[:len(whole)-3], "cut short"},
		"too long":  {append(bytes.Clone(whole[:len(whole)-8]), "\xff\xff\xff\x7fPAR1"...), "more than the file has"},
		"encrypted": {append(bytes.Clone(whole[:len(whole)-4]), "PARE"...), "is encrypted"},
		"no footer": {[]byte("PAR1\x00\x00\x00\x00PAR1"), "damaged: its metadata end in the middle"},
	} {
		if _, _, err := count(t, save(t, c.file)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
