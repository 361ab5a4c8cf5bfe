package parquet

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	pq "github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/deprecated"
	pqthrift "github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"

	"github.com/evalrun/evalrun/datasets"
	"github.com/evalrun/evalrun/datasets/table"
)

func int32s(list ...int32) (out []pq.Value) {
	for _, x := range list {
		out = append(out, pq.Int32Value(x))
	}
	return out
}

func int64s(list ...int64) (out []pq.Value) {
	for _, x := range list {
		out = append(out, pq.Int64Value(x))
	}
	return out
}

func byteses(list ...string) (out []pq.Value) {
	for _, x := range list {
		out = append(out, pq.ByteArrayValue([]byte(x)))
	}
	return out
}

func fixeds(list ...string) (out []pq.Value) {
	for _, x := range list {
		out = append(out, pq.FixedLenByteArrayValue([]byte(x)))
	}
	return out
}

// Values are what their column's logical type says, whatever they are stored as.
func TestLogicalTypes(t *testing.T) {
	long := "\x3b\x9a\xc9\xff" // 999999999
	for name, c := range map[string]struct {
		node pq.Node
		list []pq.Value
		want string
	}{
		"decimal 32": {pq.Decimal(2, 9, pq.Int32Type), int32s(110, -5, 0, math.MinInt32),
			`1.10 -0.05 0.00 -21474836.48`},
		"decimal 64": {pq.Decimal(18, 18, pq.Int64Type), int64s(1, -1e17),
			`0.000000000000000001 -0.100000000000000000`},
		"decimal whole": {pq.Decimal(0, 9, pq.Int32Type), int32s(110, -5), `110 -5`},
		"decimal fixed": {pq.Decimal(2, 9, pq.FixedLenByteArrayType(5)),
			fixeds("\x00\x00\x00\x00n", "\xff\xff\xff\xff\xfb", "\x80\x00\x00\x00\x00"), `1.10 -0.05 -5497558138.88`},
		"decimal bytes": {pq.Decimal(1, 38, pq.ByteArrayType),
			byteses("\x0b", "\xf5", "\xff", "\x80", "\x00\xff", strings.Repeat("\x00", 50)+long),
			`1.1 -1.1 -0.1 -12.8 25.5 99999999.9`},
		"decimal long": {pq.Decimal(3, 76, pq.ByteArrayType), byteses("\x80" + strings.Repeat("\x00", 15)),
			`-170141183460469231731687303715884105.728`},
		"int 8":   {pq.Int(8), int32s(-128, 127), `-128 127`},
		"int 16":  {pq.Int(16), int32s(-32768), `-32768`},
		"uint 8":  {pq.Uint(8), int32s(255), `255`},
		"uint 32": {pq.Uint(32), int32s(-1, 7), `4294967295 7`},
		"uint 64": {pq.Uint(64), int64s(-1, math.MinInt64, 7), `18446744073709551615 9223372036854775808 7`},
		"float 16": {pq.Leaf(float16Type{pq.FixedLenByteArrayType(2)}),
			fixeds("\x00\x3e", "\x66\x2e", "\x00\xc0", "\xff\x7b", "\x01\x00", "\x00\x00", "\x00\x80", "\x00\x7e",
				"\x00\xfc", "\x01\x3c"),
			`1.5 0.1 -2 65504 0.00000006 0 -0 null null 1.001`},
		"date": {pq.Date(), int32s(18262, 0, -1, 2932896, -719162),
			`"2020-01-01" "1970-01-01" "1969-12-31" "9999-12-31" "0001-01-01"`},
		"time ms": {pq.Time(pq.Millisecond), int32s(45000000, 1), `"12:30:00" "00:00:00.001"`},
		"time us": {pq.Time(pq.Microsecond), int64s(45000000000, 86399999999), `"12:30:00" "23:59:59.999999"`},
		"time ns": {pq.TimeAdjusted(pq.Nanosecond, false), int64s(45000500000000, 1),
			`"12:30:00.5" "00:00:00.000000001"`},
		"timestamp ms": {pq.Timestamp(pq.Millisecond), int64s(1577836800000, -1),
			`"2020-01-01T00:00:00Z" "1969-12-31T23:59:59.999Z"`},
		"timestamp us": {pq.TimestampAdjusted(pq.Microsecond, false), int64s(1577836800000000, -62135596800000000),
			`"2020-01-01T00:00:00" "0001-01-01T00:00:00"`},
		"timestamp ns": {pq.TimestampAdjusted(pq.Nanosecond, true), int64s(1, math.MinInt64),
			`"1970-01-01T00:00:00.000000001Z" "1677-09-21T00:12:43.145224192Z"`},
		"int 96": {pq.Leaf(pq.Int96Type),
			[]pq.Value{pq.Int96Value(deprecated.Int96{0, 0, 2440588}),
				pq.Int96Value(deprecated.Int96{1e9, 0, 2440587})}, `"1970-01-01T00:00:00" "1969-12-31T00:00:01"`},
		"uuid": {pq.UUID(), fixeds("\x01\x23\x45\x67\x89\xab\xcd\xef\x01\x23\x45\x67\x89\xab\xcd\xef"),
			`"01234567-89ab-cdef-0123-456789abcdef"`},
		"enum": {pq.Enum(), byteses("a"), `"a"`},
		"json": {pq.JSON(), byteses(`{"a":1}`), `"{\"a\":1}"`},
	} {
		for _, encoding := range []struct {
			name string
			of   func(pq.Node) pq.Node
		}{{"", func(n pq.Node) pq.Node { return n }},
			{" in a dictionary", func(n pq.Node) pq.Node { return pq.Encoded(n, &pq.RLEDictionary) }}} {
			t.Run(name+encoding.name, func(t *testing.T) {
				var buf bytes.Buffer
				w := pq.NewWriter(&buf, pq.NewSchema("root", pq.Group{"a": encoding.of(c.node)}))
				for _, v := range c.list {
					if _, err := w.WriteRows([]pq.Row{{v.Level(0, 0, 0)}}); err != nil {
						t.Fatal(err)
					}
				}
				if err := w.Close(); err != nil {
					t.Fatal(err)
				}
				check(t, save(t, buf.Bytes()), c.want)
			})
		}
	}
}

// check compares the values of column "a", which are separated by spaces.
func check(t *testing.T, f *file, want string) {
	t.Helper()
	var got []string
	for row, err := range f.Rows(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, strings.TrimSuffix(strings.TrimPrefix(string(row.Data), `{"a":`), "}"))
	}
	if s := strings.Join(got, " "); s != want {
		t.Errorf("%s, want %s", s, want)
	}
}

// float16Type is the logical type that the writer has none of its own for.
type float16Type struct{ pq.Type }

func (float16Type) LogicalType() *format.LogicalType {
	return &format.LogicalType{Value: &format.Float16Type{}}
}

// one is a file with a single value in a column whose place in the schema a test decides.
func one(t *testing.T, body []byte, edit func(*format.SchemaElement)) *file {
	t.Helper()
	return save(t, crafted{rows: 1, columns: []craftedColumn{
		{pages: [][]byte{page(t, 1, format.Plain, body, len(body))}}}, edit: func(m *format.FileMetaData) {
		edit(&m.Schema[1])
	}}.bytes(t))
}

func le32(x int32) []byte { return binary.LittleEndian.AppendUint32(nil, uint32(x)) }
func le64(x int64) []byte { return binary.LittleEndian.AppendUint64(nil, uint64(x)) }

// The older annotations mean what the newer ones do, which count where both are there.
func TestConvertedTypes(t *testing.T) {
	for name, c := range map[string]struct {
		kind format.Type
		as   deprecated.ConvertedType
		body []byte
		want string
	}{
		"decimal":      {format.Int32, deprecated.Decimal, le32(110), `1.10`},
		"decimal text": {format.ByteArray, deprecated.Decimal, texts("\x00n"), `1.10`},
		"date":         {format.Int32, deprecated.Date, le32(18262), `"2020-01-01"`},
		"time ms":      {format.Int32, deprecated.TimeMillis, le32(45000000), `"12:30:00"`},
		"time us":      {format.Int64, deprecated.TimeMicros, le64(45000000000), `"12:30:00"`},
		"timestamp ms": {format.Int64, deprecated.TimestampMillis, le64(1577836800000), `"2020-01-01T00:00:00Z"`},
		"timestamp us": {format.Int64, deprecated.TimestampMicros, le64(1577836800000000), `"2020-01-01T00:00:00Z"`},
		"uint 8":       {format.Int32, deprecated.Uint8, le32(200), `200`},
		"uint 16":      {format.Int32, deprecated.Uint16, le32(60000), `60000`},
		"uint 32":      {format.Int32, deprecated.Uint32, le32(-1), `4294967295`},
		"uint 64":      {format.Int64, deprecated.Uint64, le64(-1), `18446744073709551615`},
		"int 8":        {format.Int32, deprecated.Int8, le32(-100), `-100`},
		"int 16":       {format.Int32, deprecated.Int16, le32(-30000), `-30000`},
		"int 32":       {format.Int32, deprecated.Int32, le32(-1), `-1`},
		"int 64":       {format.Int64, deprecated.Int64, le64(-1), `-1`},
		"text":         {format.ByteArray, deprecated.UTF8, texts("a"), `"a"`},
		"enum":         {format.ByteArray, deprecated.Enum, texts("a"), `"a"`},
		"json":         {format.ByteArray, deprecated.Json, texts("[1]"), `"[1]"`},
	} {
		t.Run(name, func(t *testing.T) {
			check(t, one(t, c.body, func(e *format.SchemaElement) {
				e.Type, e.ConvertedType = pqthrift.New(c.kind), pqthrift.New(c.as)
				e.Scale, e.Precision = pqthrift.New(int32(2)), pqthrift.New(int32(9))
			}), c.want)
		})
	}
	check(t, one(t, le64(1577836800000), func(e *format.SchemaElement) {
		e.Type, e.ConvertedType = pqthrift.New(format.Int64), pqthrift.New(deprecated.TimestampMillis)
		e.LogicalType.Value = &format.TimestampType{Unit: format.TimeUnit{Value: &format.MilliSeconds{}}}
	}), `"2020-01-01T00:00:00"`)
}

// What is not known is refused with the column's name and its type; a value that its type has not
// breaks its row.
func TestTypesRefused(t *testing.T) {
	converted := func(c deprecated.ConvertedType) func(*format.SchemaElement) {
		return func(e *format.SchemaElement) { e.ConvertedType = pqthrift.New(c) }
	}
	as := func(kind format.Type, v format.LogicalTypeValue) func(*format.SchemaElement) {
		return func(e *format.SchemaElement) { e.Type, e.LogicalType.Value = pqthrift.New(kind), v }
	}
	ms := format.TimeUnit{Value: &format.MilliSeconds{}}
	for name, c := range map[string]struct {
		edit func(*format.SchemaElement)
		body []byte
		want string
	}{
		"bson":        {as(format.ByteArray, &format.BsonType{}), nil, `column "a" is BSON, which cannot be read`},
		"bson of old": {converted(deprecated.Bson), nil, `column "a" is BSON, which cannot be read`},
		"interval":    {converted(deprecated.Interval), nil, `column "a" is INTERVAL, which cannot be read`},
		"geometry": {as(format.ByteArray, &format.GeometryType{}), nil,
			`column "a" is GEOMETRY, which cannot be read`},
		"unknown": {converted(99), nil, `column "a" is of an unknown logical type, which cannot be read`},
		"a list":  {converted(deprecated.List), nil, `column "a" is LIST, which cannot be read`},
		"date": {as(format.Int64, &format.DateType{}), nil,
			`column "a" is said to be DATE, but INT64 cannot hold that`},
		"uuid": {as(format.ByteArray, &format.UUIDType{}), nil,
			`column "a" is said to be UUID, but BYTE_ARRAY cannot hold that`},
		"text": {as(format.Double, &format.StringType{}), nil,
			`column "a" is said to be STRING, but DOUBLE cannot hold that`},
		"int": {as(format.Int32, &format.IntType{BitWidth: 64}), nil,
			`column "a" is said to be INT(64, false), but INT32 cannot hold that`},
		"no unit": {as(format.Int64, &format.TimestampType{}), nil,
			`TIMESTAMP in an unknown unit, but INT64 cannot hold that`},
		"unit": {as(format.Int64, &format.TimeType{Unit: ms}), nil,
			`TIME in MILLIS, but INT64 cannot hold that`},
		"scale": {as(format.Int32, &format.DecimalType{Scale: math.MaxInt32, Precision: 9}), nil,
			`said to be DECIMAL(9, 2147483647)`},
		"less scale": {as(format.Int32, &format.DecimalType{Scale: -1, Precision: 9}), nil,
			`said to be DECIMAL(9, -1)`},
		"no precision": {converted(deprecated.Decimal), nil, `said to be DECIMAL(0, 0)`},
		"digits": {as(format.ByteArray, &format.DecimalType{Precision: 77}), nil,
			`column "a" is DECIMAL(77, 0); at most 76 digits are read`},

		"long decimal": {as(format.ByteArray, &format.DecimalType{Precision: 9}),
			texts("\x01" + strings.Repeat("x", 33)), `row 1: column "a": a DECIMAL of more than 76 digits`},
		"empty decimal": {as(format.ByteArray, &format.DecimalType{Precision: 9}), texts(""),
			`row 1: column "a": a DECIMAL of no bytes`},
		"int 8": {as(format.Int32, &format.IntType{BitWidth: 8, IsSigned: true}), le32(128),
			`row 1: column "a": 128 is no INT(8, true)`},
		"uint 8": {as(format.Int32, &format.IntType{BitWidth: 8}), le32(256),
			`row 1: column "a": 256 is no INT(8, false)`},
		"late date": {as(format.Int32, &format.DateType{}), le32(math.MaxInt32),
			`row 1: column "a": a time in the year 5881580`},
		"late timestamp": {as(format.Int64, &format.TimestampType{Unit: ms}), le64(math.MaxInt64),
			`row 1: column "a": a time in the year 292278994`},
		"time": {as(format.Int32, &format.TimeType{Unit: ms}), le32(86400000),
			`row 1: column "a": 86400000 is no TIME in MILLIS`},
		"less time": {as(format.Int32, &format.TimeType{Unit: ms}), le32(-1),
			`row 1: column "a": -1 is no TIME in MILLIS`},
		"int 96": {func(e *format.SchemaElement) { e.Type = pqthrift.New(format.Int96) },
			bytes.Repeat([]byte{0x7f}, 12), `row 1: column "a": a time in the year`},
		"not UTF-8": {as(format.ByteArray, &format.StringType{}), texts("\xff"),
			`row 1: column "a": bytes that are not UTF-8`},
	} {
		t.Run(name, func(t *testing.T) {
			n := 0
			for row, err := range one(t, c.body, c.edit).Rows(t.Context()) {
				n++
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%s, %v, want %q", row.Data, err, c.want)
				}
				if bad := strings.HasPrefix(c.want, "row"); bad != errors.As(err, new(*datasets.BadTask)) {
					t.Errorf("%T", err)
				}
			}
			if n != 1 {
				t.Errorf("%d", n)
			}
		})
	}
}

// A variant is a group.
func TestVariantRefused(t *testing.T) {
	body := texts("x")
	f := save(t, crafted{rows: 1, columns: []craftedColumn{
		{pages: [][]byte{page(t, 1, format.Plain, body, len(body))}}}, edit: func(m *format.FileMetaData) {
		v := format.SchemaElement{Name: "v", NumChildren: pqthrift.New(int32(1)),
			RepetitionType: pqthrift.New(format.Required)}
		v.LogicalType.Value = &format.VariantType{}
		m.Schema = []format.SchemaElement{m.Schema[0], v, m.Schema[1]}
	}}.bytes(t))
	if _, _, err := count(t, f); err == nil ||
		!strings.Contains(err.Error(), `column "v" is VARIANT, which cannot be read`) {
		t.Error(err)
	}
}

// An error about a missing column says that it contains bytes. A list that contains some is left
// out completely, not shortened.
func TestBytesLeftOut(t *testing.T) {
	var buf bytes.Buffer
	w := pq.NewGenericWriter[struct {
		A []byte   `parquet:"a"`
		B [][]byte `parquet:"b,list"`
		C string   `parquet:"c"`
	}](&buf)
	if _, err := w.Write([]struct {
		A []byte   `parquet:"a"`
		B [][]byte `parquet:"b,list"`
		C string   `parquet:"c"`
	}{{[]byte("x"), [][]byte{[]byte("x"), []byte("y")}, "x"},
		{[]byte("\xff"), [][]byte{[]byte("x"), []byte("\xff")}, "x"}}); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	source := table.New(save(t, buf.Bytes()), func(r table.Row) (datasets.Task, error) {
		f, err := r.Fields()
		if err == nil && !f.Has("a") {
			err = f.Missing("a")
		}
		return datasets.Task{ID: "x", Data: r.Data}, err
	})
	var got []string
	for task, err := range source.Tasks(t.Context()) {
		got = append(got, string(task.Data))
		if err != nil {
			got[len(got)-1] = err.Error()
		}
	}
	const data, missing = `{"a":"x","b":["x","y"],"c":"x"}`,
		`row 2: task "x": no column named a; the columns are c; left out, as they hold bytes that are not UTF-8: a, b`
	if len(got) != 2 || got[0] != data || !strings.HasSuffix(got[1], missing) {
		t.Errorf("%q", got)
	}
}

// All numbers of 16 bits are told from each other.
func TestFloat16(t *testing.T) {
	seen := map[string]bool{}
	for bits := range uint16(0x7c00) {
		b, err := float16(nil, bits)
		var x float64
		if _, scan := fmt.Sscan(string(b), &x); err != nil || scan != nil ||
			math.Abs(x-half(bits)) > (half(bits+1)-half(bits))/2 || seen[string(b)] {
			t.Fatalf("%#x is %s, want %v; %v", bits, b, half(bits), err)
		}
		seen[string(b)] = true
	}
}
