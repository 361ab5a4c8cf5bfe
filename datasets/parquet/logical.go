package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"time"
)

// Logical types of the format, by their field number in LogicalType. INTERVAL has no field there;
// the format reserves the number 9 for it.
const (
	logicalString    = 1
	logicalEnum      = 4
	logicalDecimal   = 5
	logicalDate      = 6
	logicalTime      = 7
	logicalTimestamp = 8
	logicalInterval  = 9
	logicalInt       = 10
	logicalUnknown   = 11
	logicalJSON      = 12
	logicalBSON      = 13
	logicalUUID      = 14
	logicalFloat16   = 15
	logicalVariant   = 16
)

var logicalNames = [...]string{"", "STRING", "MAP", "LIST", "ENUM", "DECIMAL", "DATE", "TIME", "TIMESTAMP", "INTERVAL",
	"INT", "UNKNOWN", "JSON", "BSON",
	"UUID", "FLOAT16", "VARIANT", "GEOMETRY", "GEOGRAPHY"}

// MaxDigits is the maximum number of digits of a DECIMAL.
const MaxDigits = 76

// A logical describes the meaning of a column's values.
type logical struct {
	id        int   // 0 means that only the physical type counts
	scale     int64 // of a DECIMAL
	precision int64
	unit      int64 // units per second of a TIME or TIMESTAMP; 0 if not known
	utc       bool  // of a TIMESTAMP
	bits      int64 // of an INT
	signed    bool
}

// String returns the type as the format's documentation writes it.
func (l logical) String() string {
	switch {
	case l.id < 0 || l.id >= len(logicalNames):
		return "of an unknown logical type"
	case l.id == logicalDecimal:
		return fmt.Sprintf("DECIMAL(%d, %d)", l.precision, l.scale)
	case l.id == logicalInt:
		return fmt.Sprintf("INT(%d, %t)", l.bits, l.signed)
	case l.id == logicalTime, l.id == logicalTimestamp:
		unit := map[int64]string{1e3: "MILLIS", 1e6: "MICROS", 1e9: "NANOS"}[l.unit]
		if unit == "" {
			unit = "an unknown unit"
		}
		return logicalNames[l.id] + " in " + unit
	}
	return logicalNames[l.id]
}

// logical decodes a LogicalType.
func (t *thrift) logical(typ byte) logical {
	var l logical
	t.fields(typ, func(id int, typ byte) {
		l.id = id
		switch id {
		case logicalDecimal:
			t.fields(typ, func(id int, typ byte) {
				switch id {
				case 1:
					l.scale = t.int(typ)
				case 2:
					l.precision = t.int(typ)
				default:
					t.skip(typ)
				}
			})
		case logicalTime, logicalTimestamp:
			t.fields(typ, func(id int, typ byte) {
				switch id {
				case 1:
					l.utc = typ == tTrue
					t.skip(typ)
				case 2:
					t.fields(typ, func(id int, typ byte) {
						l.unit = map[int]int64{1: 1e3, 2: 1e6, 3: 1e9}[id]
						t.skip(typ)
					})
				default:
					t.skip(typ)
				}
			})
		case logicalInt:
			t.fields(typ, func(id int, typ byte) {
				switch id {
				case 1:
					l.bits = t.int(typ)
				case 2:
					l.signed = typ == tTrue
					t.skip(typ)
				default:
					t.skip(typ)
				}
			})
		default:
			t.skip(typ)
		}
	})
	return l
}

// converted returns the logical type of a ConvertedType. The format's documentation says that its
// times are in UTC.
func converted(n, scale, precision int64) logical {
	switch {
	case n == 0:
		return logical{id: logicalString}
	case n >= 1 && n <= 3: // MAP, MAP_KEY_VALUE, LIST
		return logical{id: int(min(n+1, 3))}
	case n == 4:
		return logical{id: logicalEnum}
	case n == 5:
		return logical{id: logicalDecimal, scale: scale, precision: precision}
	case n == 6:
		return logical{id: logicalDate}
	case n == 7:
		return logical{id: logicalTime, unit: 1e3, utc: true}
	case n == 8:
		return logical{id: logicalTime, unit: 1e6, utc: true}
	case n == 9:
		return logical{id: logicalTimestamp, unit: 1e3, utc: true}
	case n == 10:
		return logical{id: logicalTimestamp, unit: 1e6, utc: true}
	case n >= 11 && n <= 18: // UINT_8 to UINT_64, INT_8 to INT_64
		return logical{id: logicalInt, bits: 8 << ((n - 11) % 4), signed: n >= 15}
	case n == 19:
		return logical{id: logicalJSON}
	case n == 20:
		return logical{id: logicalBSON}
	case n == 21:
		return logical{id: logicalInterval}
	}
	return logical{id: -1}
}

// readable returns an error if values of the column's type are not supported. Their meaning is
// never guessed.
func (c *column) readable() error {
	l, k, ok := c.logical, c.kind, false
	switch l.id {
	case 0, logicalUnknown:
		return nil
	case logicalString, logicalEnum, logicalJSON:
		ok = k == kindBytes || k == kindFixed
	case logicalDecimal:
		if l.scale < 0 || l.precision < 1 || l.scale > l.precision {
			return fmt.Errorf("damaged: column %q is said to be %s", c.name, l)
		}
		if l.precision > MaxDigits {
			return fmt.Errorf("column %q is %s; at most %d digits are read", c.name, l, MaxDigits)
		}
		ok = k == kindInt32 || k == kindInt64 || k == kindBytes || k == kindFixed
	case logicalDate:
		ok = k == kindInt32
	case logicalTime:
		ok = k == kindInt32 && l.unit == 1e3 || k == kindInt64 && (l.unit == 1e6 || l.unit == 1e9)
	case logicalTimestamp:
		ok = k == kindInt64 && l.unit > 0
	case logicalInt:
		ok = k == kindInt32 && (l.bits == 8 || l.bits == 16 || l.bits == 32) || k == kindInt64 && l.bits == 64
	case logicalUUID:
		ok = k == kindFixed && c.width == 16
	case logicalFloat16:
		ok = k == kindFixed && c.width == 2
	default:
		return fmt.Errorf("column %q is %s, which cannot be read: write the file without it, or with text in its place",
			c.name, l)
	}
	if !ok {
		return fmt.Errorf("damaged: column %q is said to be %s, but %s cannot hold that", c.name, l, kindNames[k])
	}
	return nil
}

// Errors for values that are not written.
var (
	errNone  = errors.New("a number that JSON has not") // written as null
	errBytes = errors.New("bytes that are not UTF-8")
)

// meant appends a value of a column whose logical type is not text.
func meant(b []byte, c *column, v *value) ([]byte, error) {
	n := int64(v.num)
	if c.kind == kindInt32 {
		n = int64(int32(v.num))
	}
	l := c.logical
	switch l.id {
	case logicalInt:
		return whole(b, l, n)
	case logicalDecimal:
		if c.kind == kindInt32 || c.kind == kindInt64 {
			return decimal(b, strconv.FormatInt(n, 10), int(l.scale)), nil
		}
		x, err := unscaled(v.b)
		if err != nil {
			return b, err
		}
		return decimal(b, x.String(), int(l.scale)), nil
	case logicalDate:
		return moment(b, time.Unix(n*86400, 0), "2006-01-02")
	case logicalTime:
		if n < 0 || n >= 86400*l.unit {
			return b, fmt.Errorf("%d is no %s", n, l)
		}
		return moment(b, since(n, l.unit), "15:04:05.999999999")
	case logicalTimestamp:
		layout := "2006-01-02T15:04:05.999999999"
		if l.utc {
			layout += "Z"
		}
		return moment(b, since(n, l.unit), layout)
	case logicalUUID:
		return fmt.Appendf(b, `"%x-%x-%x-%x-%x"`, v.b[:4], v.b[4:6], v.b[6:8], v.b[8:10], v.b[10:]), nil
	}
	return float16(b, binary.LittleEndian.Uint16(v.b)) // readable allows no other type
}

// whole appends an INT.
func whole(b []byte, l logical, n int64) ([]byte, error) {
	unused := 64 - l.bits
	if l.signed {
		if n<<unused>>unused != n {
			return b, fmt.Errorf("%d is no %s", n, l)
		}
		return strconv.AppendInt(b, n, 10), nil
	}
	x := uint64(n)
	if l.bits < 64 {
		x = uint64(uint32(n))
	}
	if x<<unused>>unused != x {
		return b, fmt.Errorf("%d is no %s", x, l)
	}
	return strconv.AppendUint(b, x, 10), nil
}

// unscaled decodes a big-endian integer in two's complement.
func unscaled(b []byte) (*big.Int, error) {
	if len(b) == 0 {
		return nil, errors.New("a DECIMAL of no bytes")
	}
	negative := b[0] >= 0x80
	fill := byte(0)
	if negative {
		fill = 0xff
	}
	for len(b) > 1 && b[0] == fill {
		b = b[1:]
	}
	if len(b) > 33 {
		return nil, fmt.Errorf("a DECIMAL of more than %d digits", MaxDigits)
	}
	x := new(big.Int).SetBytes(b)
	if negative { // restore the sign bytes that were left out
		x.Sub(x, new(big.Int).Lsh(big.NewInt(1), uint(8*len(b))))
	}
	return x, nil
}

// decimal appends a number whose last scale digits are after the decimal point.
func decimal(b []byte, digits string, scale int) []byte {
	if digits[0] == '-' {
		b, digits = append(b, '-'), digits[1:]
	}
	if scale == 0 {
		return append(b, digits...)
	}
	for i := max(len(digits), scale+1); i > 0; i-- {
		if i == scale {
			b = append(b, '.')
		}
		if i > len(digits) {
			b = append(b, '0')
		} else {
			b = append(b, digits[len(digits)-i])
		}
	}
	return b
}

func since(n, unit int64) time.Time { return time.Unix(n/unit, n%unit*(1e9/unit)) }

// int96 decodes the 12-byte time of Impala and Spark: nanoseconds of the day, and the Julian day.
func int96(b []byte) time.Time {
	const epoch = 2440588 // the Julian day of 1970-01-01
	day := int64(int32(binary.LittleEndian.Uint32(b[8:])))
	return time.Unix((day-epoch)*86400, int64(binary.LittleEndian.Uint64(b)))
}

// moment appends a time as text.
func moment(b []byte, t time.Time, layout string) ([]byte, error) {
	t = t.UTC()
	if y := t.Year(); y < 0 || y > 9999 {
		return b, fmt.Errorf("a time in the year %d; those of 0 to 9999 are read", y)
	}
	return append(t.AppendFormat(append(b, '"'), layout), '"'), nil
}

// float16 appends a whole number as it is, and any other as the shortest number that rounds to the
// same 16-bit float.
func float16(b []byte, bits uint16) ([]byte, error) {
	size := bits &^ 0x8000
	if size >= 0x7c00 {
		return b, errNone
	}
	x := half(size)
	y := x
	for digits := 1; x != math.Trunc(x) && digits <= 5; digits++ { // five digits are always enough
		y, _ = strconv.ParseFloat(strconv.FormatFloat(x, 'g', digits, 64), 64)
		if 2*y > x+half(size-1) && 2*y < x+half(size+1) { // closer to this value than to both neighbors
			break
		}
	}
	s := strconv.FormatFloat(y, 'f', -1, 64)
	if bits != size {
		b = append(b, '-')
	}
	return append(b, s...), nil
}

// half converts the bits of a positive 16-bit float.
func half(bits uint16) float64 {
	exp, frac := int(bits>>10), int(bits&0x3ff)
	if exp == 0 {
		return math.Ldexp(float64(frac), -24)
	}
	return math.Ldexp(float64(frac+1024), exp-25)
}
