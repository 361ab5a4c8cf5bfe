package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/datasets/table"
)

// Limits of what is read, far above what tables of tasks need.
const (
	MaxColumns = 1000     // columns of a file
	MaxFooter  = 64 << 20 // bytes of the metadata at the end of a file
	MaxRow     = 64 << 20 // bytes of a row as JSON; a longer row is a bad row
	// MaxHeld is the maximum number of bytes of pages and dictionaries, compressed and
	// decompressed, in memory at once for all columns together.
	MaxHeld = 512 << 20
)

// Physical types of the format.
const (
	kindBool = iota
	kindInt32
	kindInt64
	kindInt96
	kindFloat
	kindDouble
	kindBytes
	kindFixed
)

var kindNames = [...]string{"BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY",
	"FIXED_LEN_BYTE_ARRAY"}

// A column is a leaf of the schema.
type column struct {
	name   string
	kind   int
	width  int // bytes of a value; 0 means that each value has its own length
	maxRep int
	maxDef int

	logical logical
}

// text reports whether the column is declared as text.
func (c *column) text() bool {
	return c.logical.id == logicalString || c.logical.id == logicalEnum || c.logical.id == logicalJSON
}

func (c *column) list() bool { return c.maxRep > 0 }

// what describes the column's type, for messages and to compare files.
func (c *column) what() string {
	s := kindNames[c.kind]
	switch id := c.logical.id; {
	case c.text():
		s = "text"
	case id == logicalTimestamp && c.logical.utc:
		s = "TIMESTAMP in UTC"
		// values are exact, so units and digits may differ between files
	case id != 0 && id != logicalInt && id != logicalUnknown:
		s = logicalNames[id]
	}
	if c.list() {
		s = "list of " + s
	}
	return s
}

// A group is a row group.
type group struct {
	rows   int64
	chunks []chunk // by column
}

// A chunk is a column's part of a row group.
type chunk struct {
	codec    int8
	values   int64 // includes nulls
	start    int64 // offset of its first page in the file
	unpacked int64 // decompressed bytes of its pages, as declared by the file
}

// A footer holds the file's metadata, as far as it is needed here: about 32 bytes per column and
// row group.
type footer struct {
	cols    []column
	members []member // of a row, sorted by name
	groups  []group
	rows    int64
	leaves  int    // columns of the schema, even if there are too many to read
	end     int64  // upper bound of the offset at which the pages end
	limit   int64  // maximum of the decompressed bytes and of the size of the values
	variant string // a column of type VARIANT; "" if there is none
}

// A member of a row is a column, or null in every row.
type member struct {
	name string
	col  int // -1 means null
}

func (f *footer) sort() {
	slices.SortFunc(f.members, func(a, b member) int { return strings.Compare(a.name, b.name) })
}

// readFooter reads and validates a file's metadata.
func readFooter(r io.ReaderAt, size int64) (*footer, error) {
	var head, tail [8]byte
	if size < 12 {
		return nil, errors.New("not a Parquet file: it is too short")
	}
	if _, err := r.ReadAt(head[:4], 0); err != nil {
		return nil, err
	}
	if _, err := r.ReadAt(tail[:], size-8); err != nil {
		return nil, err
	}
	switch magic := string(tail[4:]); {
	case magic == "PARE":
		return nil, errors.New("the file is encrypted; decrypt it first")
	case magic != "PAR1" && string(head[:4]) == "PAR1":
		return nil, errors.New("a Parquet file that is cut short: fetch it again")
	case magic != "PAR1" || string(head[:4]) != "PAR1":
		return nil, errors.New("not a Parquet file: it does not begin and end with PAR1")
	}
	n := int64(binary.LittleEndian.Uint32(tail[:]))
	if n > size-12 {
		return nil, fmt.Errorf("damaged: its metadata are said to be %d bytes, more than the file has", n)
	}
	if n > MaxFooter {
		return nil, fmt.Errorf("its metadata are %d MiB; at most %d MiB are read", n>>20, MaxFooter>>20)
	}
	b := make([]byte, n)
	if _, err := r.ReadAt(b, size-8-n); err != nil {
		return nil, err
	}
	f := &footer{end: size - 8 - n, limit: table.MaxUnpacked(size)}
	if err := f.parse(b); err != nil {
		return nil, fmt.Errorf("damaged: %w", err)
	}
	return f, f.check()
}

// check compares the metadata with what is possible in a file, and with the limits.
func (f *footer) check() error {
	if f.leaves > MaxColumns {
		return fmt.Errorf("it has %d columns; at most %d are read: write a file with those that the tasks need",
			f.leaves, MaxColumns)
	}
	if len(f.cols) == 0 {
		return errors.New("it has no columns")
	}
	if f.variant != "" {
		return (&column{name: f.variant, logical: logical{id: logicalVariant}}).readable()
	}
	for i, c := range f.cols {
		if err := c.readable(); err != nil {
			return err
		}
		f.members = append(f.members, member{c.name, i})
	}
	f.sort()
	for i, m := range f.members[1:] {
		if m.name == f.members[i].name {
			return fmt.Errorf("it has two columns called %q", m.name)
		}
	}
	unpacked := make([]int64, len(f.cols))
	var total, values int64
	for i, g := range f.groups {
		if len(g.chunks) != len(f.cols) {
			return fmt.Errorf("damaged: row group %d has %d columns, the schema %d", i+1, len(g.chunks), len(f.cols))
		}
		if g.rows < 0 || g.rows > f.limit {
			return fmt.Errorf("damaged: row group %d is said to have %d rows", i+1, g.rows)
		}
		for k, c := range g.chunks {
			col := &f.cols[k]
			switch {
			case c.values < g.rows || c.values > g.rows && !col.list():
				return fmt.Errorf("damaged: row group %d has %d rows, but its column %q %d values", i+1, g.rows,
					col.name, c.values)
			case c.unpacked < 0:
				return fmt.Errorf("damaged: column %q of row group %d is said to be %d bytes", col.name, i+1,
					c.unpacked)
			case c.values > 0 && (c.start < 4 || c.start >= f.end):
				return fmt.Errorf("damaged: column %q of row group %d is said to begin at byte %d, outside "+
					"of the pages", col.name, i+1, c.start)
			}
			unpacked[k] = min(unpacked[k], f.limit) + min(c.unpacked, f.limit) // bounded, so neither overflows
			total, values = min(total, f.limit)+min(c.unpacked, f.limit), min(values, f.limit)+min(c.values, f.limit)
			if total > f.limit {
				k = slices.Index(unpacked, slices.Max(unpacked))
				return fmt.Errorf("unpacking: %w; most of it is column %q", table.TooLarge(f.limit), f.cols[k].name)
			}
			if values > f.limit {
				return fmt.Errorf("it is said to have more than %d values, far more than the file's size lets expect",
					f.limit)
			}
		}
		f.rows += g.rows
	}
	return nil
}

// A node is an element of the schema as stored in the file.
type node struct {
	name     string
	kind     int // -1 for a group
	width    int64
	repeat   int64
	children int64
	logical  logical
}

func (f *footer) parse(b []byte) error {
	t := &thrift{b: b}
	var schema []node
	many := false
	t.fields(tStruct, func(id int, typ byte) {
		switch id {
		case 2:
			t.list(typ, func(typ byte) {
				n := t.node(typ)
				if n.kind >= 0 {
					f.leaves++
				}
				if len(schema) < 8*MaxColumns {
					schema = append(schema, n)
				} else {
					many = true
				}
			})
		case 4:
			if f.leaves > MaxColumns || many {
				t.skip(typ)
				return
			}
			t.list(typ, func(typ byte) { f.groups = append(f.groups, t.group(typ, f.leaves)) })
		default:
			t.skip(typ)
		}
	})
	if t.err != nil {
		return t.err
	}
	if f.leaves > MaxColumns || many {
		f.leaves = max(f.leaves, MaxColumns+1) // check reports the error
		return nil
	}
	if len(schema) == 0 {
		return errors.New("it has no schema")
	}
	next := 0
	return f.descend(schema, &next, nil, 0, 0)
}

// descend makes columns of the leaves below the node at *next.
func (f *footer) descend(schema []node, next *int, path []string, rep, def int) error {
	if len(path) > maxNesting {
		return errors.New("its schema is nested too deep")
	}
	n := schema[*next]
	root := *next == 0
	*next++
	if !root {
		path = append(slices.Clip(path), n.name)
		switch n.repeat {
		case 1:
			def++
		case 2:
			rep, def = rep+1, def+1
		}
	}
	if n.kind >= 0 {
		c := column{name: strings.Join(plain(path), "."), kind: n.kind, maxRep: rep, maxDef: def, logical: n.logical}
		switch n.kind {
		case kindInt32, kindFloat:
			c.width = 4
		case kindInt64, kindDouble:
			c.width = 8
		case kindInt96:
			c.width = 12
		case kindFixed:
			if n.width < 0 || n.width > MaxRow {
				return fmt.Errorf("column %q: values of %d bytes", c.name, n.width)
			}
			c.width = int(n.width)
		}
		f.cols = append(f.cols, c)
		return nil
	}
	if n.logical.id == logicalVariant && f.variant == "" {
		f.variant = strings.Join(path, ".")
	}
	for range n.children {
		if *next == len(schema) {
			return errors.New("its schema ends in the middle")
		}
		if err := f.descend(schema, next, path, rep, def); err != nil {
			return err
		}
	}
	return nil
}

// plain removes from a path the inner names that writers give to lists.
func plain(path []string) []string {
	n := len(path)
	if n > 2 {
		switch path[n-2] + "." + path[n-1] {
		case "list.element", "list.item", "list.array", "bag.array_element", "bag.array", "array.array_element":
			return path[:n-2]
		}
	}
	return path
}

func (t *thrift) node(typ byte) node {
	n := node{kind: -1}
	old, scale, precision := int64(-1), int64(0), int64(0) // the older declaration of a logical type
	t.fields(typ, func(id int, typ byte) {
		switch id {
		case 1:
			k := t.int(typ)
			if k < kindBool || k > kindFixed {
				t.fail(fmt.Errorf("its schema has a column of the unknown type %d", k))
				return
			}
			n.kind = int(k)
		case 2:
			n.width = t.int(typ)
		case 3:
			n.repeat = t.int(typ)
		case 4:
			n.name = string(t.bytes(typ))
		case 5:
			n.children = t.int(typ)
		case 6:
			old = t.int(typ)
		case 7:
			scale = t.int(typ)
		case 8:
			precision = t.int(typ)
		case 10:
			n.logical = t.logical(typ)
		default:
			t.skip(typ)
		}
	})
	if n.logical.id == 0 && old >= 0 {
		n.logical = converted(old, scale, precision)
	}
	return n
}

func (t *thrift) group(typ byte, columns int) group {
	g := group{rows: -1}
	t.fields(typ, func(id int, typ byte) {
		switch id {
		case 1:
			g.chunks = make([]chunk, 0, columns)
			t.list(typ, func(typ byte) {
				if c := t.chunk(typ); len(g.chunks) < columns {
					g.chunks = append(g.chunks, c)
				} else {
					t.fail(errors.New("a row group has more columns than the schema"))
				}
			})
		case 3:
			g.rows = t.int(typ)
		default:
			t.skip(typ)
		}
	})
	return g
}

func (t *thrift) chunk(typ byte) chunk {
	c := chunk{values: -1}
	var data, dict int64
	t.fields(typ, func(id int, typ byte) {
		switch id {
		case 1:
			if len(t.bytes(typ)) > 0 {
				t.fail(errors.New("its columns stand in other files"))
			}
		case 3:
			t.fields(typ, func(id int, typ byte) {
				switch id {
				case 4:
					c.codec = int8(min(max(t.int(typ), -1), 127))
				case 5:
					c.values = t.int(typ)
				case 6:
					c.unpacked = t.int(typ)
				case 9:
					data = t.int(typ)
				case 11:
					dict = t.int(typ)
				default:
					t.skip(typ)
				}
			})
		case 8, 9:
			t.fail(errors.New("its columns are encrypted; decrypt it first"))
		default:
			t.skip(typ)
		}
	})
	c.start = data
	if dict > 0 && dict < data {
		c.start = dict
	}
	return c
}
