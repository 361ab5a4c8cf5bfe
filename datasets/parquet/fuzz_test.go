package parquet_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	pq "github.com/parquet-go/parquet-go"

	"github.com/evalrun/evalrun/datasets"
	"github.com/evalrun/evalrun/datasets/parquet"
	"github.com/evalrun/evalrun/datasets/table"
)

// look reads a file that may hold anything: nothing may panic, and what is told to be a row is one.
func look(t *testing.T, b []byte) {
	t.Helper()
	f := parquet.Open(write(t, "t.parquet", b))
	n := 0
	for row, err := range f.Rows(t.Context()) {
		if err == nil && !json.Valid(row.Data) {
			t.Fatalf("a row is %q", row.Data)
		}
		if err != nil && !errors.As(err, new(*datasets.Fatal)) && !errors.As(err, new(*datasets.BadTask)) {
			t.Fatalf("%T: %v", err, err)
		}
		if n++; n > 2000 {
			break // a file of a few bytes can say that it has millions
		}
	}
	for _, i := range []int64{0, int64(n) - 1, int64(n) / 2, -1, 1 << 60} {
		if row, err := f.At(t.Context(), table.Row{Pos: i}); err == nil && !json.Valid(row.Data) {
			t.Fatalf("a row is %q", row.Data)
		}
	}
}

// samples are small files in all packings.
func samples(t testing.TB) (out [][]byte) {
	r := rand.New(rand.NewPCG(1, 2))
	var list []record
	for i := range 40 {
		list = append(list, makeRecord(r, i))
	}
	for _, name := range []string{"none", "snappy", "gzip", "brotli", "zstd", "lz4"} {
		for version := 1; version <= 2; version++ {
			out = append(out, encode(t, list, pq.Compression(codecs[name]), pq.DataPageVersion(version),
				pq.PageBufferSize(100), pq.MaxRowsPerRowGroup(25)))
		}
	}
	type typed struct {
		Date  int32     `parquet:"date,date"`
		Dec   int64     `parquet:"dec,decimal(2:18)"`
		Fixed [9]byte   `parquet:"fixed,decimal(3:20)"`
		UUID  [16]byte  `parquet:"uuid,uuid"`
		Day   int64     `parquet:"day,timestamp(microsecond)"`
		U8    uint8     `parquet:"u8"`
		Time  time.Time `parquet:"time"`
	}
	types := make([]typed, 30)
	for i := range types {
		types[i] = typed{Date: int32(i * 1000), Dec: r.Int64N(1e18), Fixed: [9]byte{8: byte(i)},
			UUID: [16]byte{byte(i)}, Day: r.Int64N(1e16), U8: uint8(i), Time: time.Unix(int64(i), 0)}
	}
	return append(out, encode(t, types), encode(t, types, pq.DataPageVersion(2), pq.Compression(&pq.Zstd)))
}

func FuzzRows(f *testing.F) {
	for _, b := range samples(f) {
		f.Add(b)
	}
	f.Add([]byte("PAR1\x19\xfc\xff\xff\xff\x0f\x06\x00\x00\x00PAR1"))
	f.Fuzz(func(t *testing.T, b []byte) { look(t, b) })
}

// Files with a few damaged bytes are read as far as they go.
func TestDamagedBytes(t *testing.T) {
	for k, whole := range samples(t) {
		t.Run(fmt.Sprint(k), func(t *testing.T) {
			r := rand.New(rand.NewPCG(3, uint64(k)))
			for range 100 {
				b := append([]byte(nil), whole...)
				for range 1 + r.IntN(3) {
					switch i := r.IntN(len(b)); r.IntN(4) {
					case 0:
						b[i] ^= 1 << r.IntN(8)
					case 1:
						b[i] = byte(r.Uint32())
					case 2:
						b[i] = 0xff
					case 3: // what it says of itself
						b[len(b)-1-r.IntN(len(b)/2)] ^= 1 << r.IntN(8)
					}
				}
				look(t, b)
			}
		})
	}
}
