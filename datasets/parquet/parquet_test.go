package parquet_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	pq "github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress"

	"github.com/evalrun/evalrun/datasets/parquet"
	"github.com/evalrun/evalrun/datasets/table"
)

// A record has all kinds of columns in all encodings that the writer has.
type record struct {
	Bool    bool      `parquet:"bool"`
	MayBool *bool     `parquet:"may_bool"`
	I32     int32     `parquet:"i32,delta"`
	I64     int64     `parquet:"i64,delta"`
	May64   *int64    `parquet:"may64,dict"`
	U32     uint32    `parquet:"u32"`
	F32     float32   `parquet:"f32,split"`
	F64     float64   `parquet:"f64,split"`
	Fixed   [4]byte   `parquet:"fixed"`
	Plain   string    `parquet:"plain,plain"`
	Dict    string    `parquet:"dict,dict"`
	Lengths string    `parquet:"lengths,delta"`
	MayText *string   `parquet:"may_text,dict"`
	Bytes   []byte    `parquet:"bytes"`
	Texts   []string  `parquet:"texts,list,dict"`
	Numbers []float64 `parquet:"numbers"`
	Group   struct {
		A *string `parquet:"a"`
		B []int32 `parquet:"b,list"`
	} `parquet:"group"`
}

func some[T any](r *rand.Rand, x T) *T {
	if r.IntN(3) == 0 {
		return nil
	}
	return &x
}

func makeRecord(r *rand.Rand, i int) (x record) {
	word := func() string { return strings.Repeat(string(rune('a'+r.IntN(26))), r.IntN(9)) + "<é&\">"[:r.IntN(2)] }
	x.Bool, x.MayBool = i/70%2 == 0, some(r, r.IntN(2) == 0)
	x.I32, x.I64, x.May64, x.U32 = int32(r.Uint32()), int64(r.Uint64()), some(r, int64(r.IntN(5))), r.Uint32()
	x.F32, x.F64 = r.Float32(), r.NormFloat64()
	copy(x.Fixed[:], fmt.Sprintf("%04d", r.IntN(10000)))
	x.Plain, x.Dict, x.Lengths, x.MayText = word(), fmt.Sprint("d", r.IntN(40)), word(), some(r, word())
	if x.Bytes = []byte(word()); i%5 == 0 {
		x.Bytes = []byte{0xff, 0xfe}
	}
	x.Texts, x.Numbers, x.Group.A, x.Group.B = []string{}, []float64{}, some(r, "g"), []int32{}
	for range r.IntN(4) {
		x.Texts, x.Numbers, x.Group.B = append(x.Texts, word()), append(x.Numbers, r.Float64()),
			append(x.Group.B, int32(r.IntN(100)))
	}
	return x
}

func (x record) want(t *testing.T) string {
	m := map[string]any{"bool": x.Bool, "may_bool": x.MayBool, "i32": x.I32, "i64": x.I64, "may64": x.May64,
		"u32": x.U32, "f32": x.F32, "f64": x.F64,
		"fixed": string(x.Fixed[:]), "plain": x.Plain, "dict": x.Dict, "lengths": x.Lengths, "may_text": x.MayText,
		"texts": x.Texts, "numbers": x.Numbers,
		"group.a": x.Group.A, "group.b": x.Group.B}
	if x.Bytes[0:] == nil || len(x.Bytes) == 0 || x.Bytes[0] != 0xff {
		m["bytes"] = string(x.Bytes)
	}
	b, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func write(t testing.TB, name string, b []byte) string {
	t.Helper()
	p := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(p, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return p
}

func encode[T any](t testing.TB, list []T, o ...pq.WriterOption) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := pq.NewGenericWriter[T](&buf, o...)
	if _, err := w.Write(list); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

var codecs = map[string]compress.Codec{"none": &pq.Uncompressed, "snappy": &pq.Snappy, "gzip": &pq.Gzip,
	"brotli": &pq.Brotli, "zstd": &pq.Zstd, "lz4": &pq.Lz4Raw}

// What a writer wrote is read, whatever the encodings, the packing, and the sizes of pages and row
// groups are; forwards, and row by row in any order.
func TestRead(t *testing.T) {
	for name, codec := range codecs {
		for version := 1; version <= 2; version++ {
			t.Run(fmt.Sprint(name, version), func(t *testing.T) {
				r := rand.New(rand.NewPCG(uint64(version), uint64(len(name))))
				var list []record
				for i := range 700 {
					list = append(list, makeRecord(r, i))
				}
				b := encode(t, list, pq.Compression(codec), pq.DataPageVersion(version),
					pq.PageBufferSize(1+r.IntN(900)), pq.MaxRowsPerRowGroup(int64(100+r.IntN(700))))
				f := parquet.Open(write(t, "t.parquet", b))
				n := 0
				for row, err := range f.Rows(t.Context()) {
					if err != nil {
						t.Fatal(err)
					}
					if want := list[n].want(t); string(row.Data) != want || row.Number != int64(n) {
						t.Fatalf("row %d is\n%s, want\n%s", n, row.Data, want)
					}
					n++
				}
				if n != len(list) {
					t.Fatalf("%d rows", n)
				}
				for range 300 {
					i := r.IntN(len(list))
					if row, err := f.At(t.Context(), table.Row{Pos: int64(i)}); err != nil ||
						string(row.Data) != list[i].want(t) {
						t.Fatalf("row %d again: %s, %v", i, row.Data, err)
					}
				}
			})
		}
	}
}

// Files of other writers are read as those writers' own readers read them.
func TestOtherWriters(t *testing.T) {
	const gate = "EVALRUN_TEST_PARQUET_READERS"
	if os.Getenv(gate) != "1" {
		t.Skipf("reads files that pyarrow and DuckDB wrote where %s=1 (EVALRUN_TEST_PYTHON names a python3 "+
			"that has them)", gate)
	}
	python := os.Getenv("EVALRUN_TEST_PYTHON")
	if python == "" {
		python = "python3"
	}
	dir := t.TempDir()
	if out, err := exec.Command(python, "-c", writers, dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	names, _ := filepath.Glob(filepath.Join(dir, "*.parquet"))
	if len(names) < 20 {
		t.Fatalf("%d files", len(names))
	}
	for _, name := range names {
		text, err := os.ReadFile(strings.TrimSuffix(name, "parquet") + "jsonl")
		if err != nil {
			t.Fatal(err)
		}
		lines := slices.Collect(bytes.Lines(text))
		n := 0
		for row, err := range parquet.Open(name).Rows(t.Context()) {
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if have, want := normal(t, row.Data), normal(t, lines[n]); have != want {
				t.Fatalf("%s: row %d is\n%s, want\n%s", name, n, have, want)
			}
			n++
		}
		if n != len(lines) {
			t.Errorf("%s: %d rows, want %d", name, n, len(lines))
		}
	}
}

func normal(t *testing.T, b []byte) string {
	var x any
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber() // 1.10 is not 1.1, and 64 bits are more than a float has
	if err := d.Decode(&x); err != nil {
		t.Fatalf("%s: %v", b, err)
	}
	b, err := json.Marshal(x)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

const writers = `
import sys, json, random, datetime, decimal, uuid, re, numpy as np, pyarrow as pa, pyarrow.parquet as pq, duckdb
random.seed(5)
n = 2000
def word(): return "".join(random.choice("abcdé<") for _ in range(random.randrange(12)))
def some(x): return None if random.random() < 0.3 else x
rows = [dict(id=i, word=word(), few=some("d%d" % random.randrange(30)), maybe=some(word()), f=random.random(), g=some(random.randrange(-9, 9) / 4),
    small=some(random.randrange(-100, 100)), big=random.randrange(-2**53, 2**53), flag=some(random.random() < 0.5), same="same", nothing=None,
    sorted="prefix/%08d/suffix" % i, list=[some(word()) for _ in range(random.randrange(4))], deep=some({"a": some(word()), "n": [i, i + 1]})) for i in range(n)]
schema = pa.schema([("id", pa.int64()), ("word", pa.string()), ("few", pa.string()), ("maybe", pa.large_string()), ("f", pa.float64()), ("g", pa.float32()),
    ("small", pa.int8()), ("big", pa.int64()), ("flag", pa.bool_()), ("same", pa.string()), ("nothing", pa.null()), ("sorted", pa.string()),
    ("list", pa.list_(pa.string())), ("deep", pa.struct([("a", pa.string()), ("n", pa.list_(pa.int32()))]))])
table = pa.Table.from_pylist(rows, schema=schema)
def want(r):
    deep = r["deep"] or {"a": None, "n": []}
    out = {k: v for k, v in r.items() if k != "deep"}
    out["list"] = [x for x in r["list"] if x is not None]
    out["deep.a"], out["deep.n"] = deep["a"], deep["n"]
    return out
def written(x): # numbers as digits, marked
    if isinstance(x, dict): return {k: written(v) for k, v in x.items()}
    if isinstance(x, list): return [written(v) for v in x]
    if isinstance(x, decimal.Decimal): return "#" + format(x, "f")
    if isinstance(x, (float, np.float16)): return "#" + (str(int(x)) if x == int(x) else np.format_float_positional(x, trim="-"))
    return x
def expect(name, list):
    with open(name + ".jsonl", "w") as f:
        for r in list: f.write(re.sub(r'"#([-0-9.]+)"', r"\1", json.dumps(written(r))) + "\n")
k = 0
def write(table=table, rows=rows, **o):
    global k
    name = "%s/%02d" % (sys.argv[1], k)
    k += 1
    pq.write_table(table, name + ".parquet", **o)
    expect(name, [want(r) for r in rows] if rows is globals()["rows"] else rows)
for codec in ["none", "snappy", "gzip", "brotli", "zstd", "lz4"]:
    for version in ["1.0", "2.0"]:
        write(compression=codec, data_page_version=version, row_group_size=random.randrange(500, 6000), data_page_size=random.choice([100, 3000, 1 << 20]))
write(use_dictionary=False)
write(use_dictionary=False, data_page_version="2.0", compression="zstd", column_encoding={"id": "DELTA_BINARY_PACKED", "big": "DELTA_BINARY_PACKED", "small": "DELTA_BINARY_PACKED",
    "word": "DELTA_LENGTH_BYTE_ARRAY", "maybe": "DELTA_BYTE_ARRAY", "sorted": "DELTA_BYTE_ARRAY", "f": "BYTE_STREAM_SPLIT", "g": "BYTE_STREAM_SPLIT", "flag": "RLE"})
write(use_dictionary=False, data_page_size=200, column_encoding={"id": "BYTE_STREAM_SPLIT", "sorted": "DELTA_LENGTH_BYTE_ARRAY", "word": "DELTA_BYTE_ARRAY", "small": "BYTE_STREAM_SPLIT"})
write(table=table.slice(0, 0), rows=[])
write(table=table.slice(0, 1), rows=[want(rows[0])])
write(version="1.0", store_schema=False)
utc = datetime.timezone.utc
def iso(x): return re.sub(r"(\.\d*?)0+$", r"\1", x.isoformat()).rstrip(".")
def isoz(x): return iso(x.replace(tzinfo=None)) + "Z"
def moment(): return datetime.datetime(random.randrange(1, 9999), 3, 1, 12, 30, 5, random.choice([0, 500000, 123456]))
def dec(digits, scale): return decimal.Decimal(random.randrange(-10**digits, 10**digits)).scaleb(-scale, decimal.Context(prec=80))
def same(x): return x
types = {"d3": (pa.decimal128(3, 2), lambda: dec(3, 2), same), "d18": (pa.decimal128(18, 4), lambda: dec(18, 4), same), "d38": (pa.decimal128(38, 30), lambda: dec(38, 30), same),
    "d76": (pa.decimal256(76, 5), lambda: dec(76, 5), same), "u8": (pa.uint8(), lambda: random.randrange(2**8), int), "u16": (pa.uint16(), lambda: random.randrange(2**16), int),
    "u32": (pa.uint32(), lambda: random.randrange(2**32), int), "u64": (pa.uint64(), lambda: random.randrange(2**64), int), "i8": (pa.int8(), lambda: random.randrange(-128, 128), int),
    "i16": (pa.int16(), lambda: random.randrange(-2**15, 2**15), int), "f16": (pa.float16(), lambda: np.float16(random.choice([random.random(), 65504, 1e-7, -3])), same),
    "date": (pa.date32(), lambda: moment().date(), lambda x: x.isoformat()), "ms": (pa.time32("ms"), lambda: datetime.time(12, 30, 5, random.choice([0, 5000])), iso),
    "us": (pa.time64("us"), lambda: moment().time(), iso), "ns": (pa.time64("ns"), lambda: moment().time(), iso), "ts": (pa.timestamp("us"), moment, iso),
    "tsz": (pa.timestamp("us", "UTC"), lambda: moment().replace(tzinfo=utc), isoz), "tsms": (pa.timestamp("ms", "Europe/Berlin"), lambda: moment().replace(year=2000, microsecond=0, tzinfo=utc), isoz),
    "tsns": (pa.timestamp("ns"), lambda: moment().replace(year=1999), iso), "uuid": (pa.uuid(), lambda: uuid.UUID(int=random.randrange(2**128)), str)}
typed = [{k: some(make()) for k, (_, make, _) in types.items()} for _ in range(500)]
text = [{k: None if v is None else types[k][2](v) for k, v in r.items()} for r in typed]
def column(k): return pa.array([r[k] for r in typed], types[k][0]) if k != "uuid" else pa.ExtensionArray.from_storage(pa.uuid(), pa.array([r[k] and r[k].bytes for r in typed], pa.binary(16)))
typedtable = pa.table({k: column(k) for k in types})
for o in [dict(), dict(use_dictionary=False), dict(store_decimal_as_integer=True), dict(version="2.4", coerce_timestamps="us"), dict(data_page_version="2.0", compression="zstd")]:
    write(typedtable, text, **o)
few = ["date", "ts", "tsns"]
write(typedtable.select(few), [{k: r[k] for k in few} for r in text], use_deprecated_int96_timestamps=True)
con = duckdb.connect()
flat = table.drop_columns(["deep", "nothing", "list"])
def duck(options, query="select * from flat"):
    global k
    name = "%s/%02d" % (sys.argv[1], k)
    k += 1
    con.execute("copy (%s) to '%s.parquet' (format parquet%s)" % (query, name, options))
    res = con.execute(query)
    names = [d[0] for d in res.description]
    expect(name, [dict(zip(names, r)) for r in res.fetchall()])
for o in ["", ", compression zstd", ", compression gzip, row_group_size 2048", ", compression lz4_raw", ", parquet_version v2", ", parquet_version v2, compression brotli"]:
    duck(o)
duck("", "select i as id, [i::decimal(9, 2)] as l from range(-200, 200) r(i)")
few = ["d3", "d18", "d38", "u8", "u16", "u32", "u64", "i8", "i16", "date", "us", "ts", "uuid", "tsz"]
con.execute("set timezone = 'UTC'")
ducktable = typedtable.select([k for k in few if k != "uuid"]).append_column("uuid", pa.array([r["uuid"] for r in text]))
for o in ["", ", parquet_version v2"]:
    name = "%s/%02d" % (sys.argv[1], k)
    k += 1
    con.execute("copy (select * replace (uuid::uuid as uuid) from ducktable) to '%s.parquet' (format parquet%s)" % (name, o))
    expect(name, [{k: r[k] for k in few} for r in text])
duck("", "select i as id, 'x' || (i % 7) as t, [i, i + 1] as l from range(30000) r(i)")
`
