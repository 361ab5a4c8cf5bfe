package parquetlog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/parquet-go/parquet-go"

	"github.com/evalrun/evalrun/reports/rows"
)

// limits say where a part is cut. All count rows and bytes of the journal, never time, so that the same journal gives the same parts.
type limits struct {
	groupRows  int   // rows of a row group
	groupBytes int64 // bytes of the journal that a row group comes from, about
	partGroups int   // row groups of a part
	partBytes  int64 // bytes of the journal that a part comes from, about
}

// cuts is a variable for the tests only. A row group bounds what is held in memory; a part what has to be copied for a new version of it.
var cuts = limits{groupRows: 4096, groupBytes: 4 << 20, partGroups: 32, partBytes: 32 << 20}

// Keys of a file's metadata.
const (
	keySchema = "evalrun.schema" // version of the tables
	keyRun    = "evalrun.run"
	keyTable  = "evalrun.table"
	keyFirst  = "evalrun.first"  // the part holds the rows of the journal's entries from here …
	keyLast   = "evalrun.last"   // … to here
	keyGroups = "evalrun.groups" // row groups that are full
	keyBytes  = "evalrun.bytes"  // journal bytes in all, and in the rows after the full row groups
	keyRows   = "evalrun.rows"   // rows taken after the full row groups
)

// A table is a folder of parts. Its last part is open: it is written again, with what has come since, under the same name.
//
// A part is named by the first journal entry that it may hold, 000000000001.parquet. So a name stands for a range of the
// journal that never shrinks and never overlaps another's, and whoever holds a list of names finds at least what was there when it
// was made, and nothing twice.
//
// Full row groups are copied from the open part's last version as they are, compressed; only the rows after them are kept in
// memory and encoded again.
type table[T any] struct {
	name string
	dir  string
	run  string
	axes axes[T] // the zero value for most tables

	w encoder[T]

	rows   []T   // not yet in a full row group
	taken  int   // rows taken since the last full row group (a replaced row is taken, but no longer in rows)
	first  int64 // of the open part
	last   int64 // of the last version of the open part
	groups int   // full row groups in the open part
	bytes  int64 // journal bytes in the open part
	tail   int64 // journal bytes since the last full row group
	dirty  bool  // rows have come or changed since the last version
	exists bool  // there is a part to be read
	size   int64 // of the last version, in bytes
}

// An encoder is what parquet.GenericWriter is.
type encoder[T any] interface {
	Reset(io.Writer)
	Write([]T) (int, error)
	WriteRowGroup(parquet.RowGroup) (int64, error)
	Flush() error
	SetKeyValueMetadata(key, value string)
	Close() error
}

func newTable[T any](root, name, run string, ax axes[T]) *table[T] {
	return &table[T]{name: name, dir: filepath.Join(root, name), run: run, axes: ax, first: 1}
}

// encoder is made late: a run of one second has no need of most of them before its end.
func (t *table[T]) encoder() encoder[T] {
	if t.w == nil {
		t.w = t.newEncoder()
	}
	return t.w
}

func (t *table[T]) newEncoder() encoder[T] {
	opts := []parquet.WriterOption{
		parquet.Compression(codec),
		parquet.CreatedBy("evalrun", strconv.Itoa(rows.Schema), ""),
		parquet.DictionaryMaxBytes(1 << 20),
		parquet.WriteBufferSize(64 << 10),
		parquet.PageBufferSize(256 << 10),
		// Long texts have no use for statistics, and readers choke on none of the others.
		parquet.ColumnIndexSizeLimit(func([]string) int { return 32 }),
	}
	if t.axes.names == nil {
		return parquet.NewGenericWriter[T](nil, opts...)
	}
	return t.axes.writer(opts)
}

// resume finds out where an earlier writer stopped, and takes up the rows that are not in a full row group. It returns false
// where there is nothing, or nothing that can be trusted; the table then begins anew.
func (t *table[T]) resume(st state) (bool, error) {
	if err := os.MkdirAll(t.dir, 0o777); err != nil {
		return false, err
	}
	names, err := t.parts()
	if err != nil || len(names) == 0 {
		return false, err
	}
	if err := t.load(names[len(names)-1]); err != nil {
		return false, t.clear()
	}
	t.exists = true
	if t.complete(t.groups, len(t.rows) == 0) {
		t.next()
	}
	t.last = max(t.last, st.Last)
	return true, nil
}

// complete reports whether a part takes no more rows: one with that many full row groups, and perhaps nothing behind them.
func (t *table[T]) complete(groups int, whole bool) bool {
	return groups >= cuts.partGroups || (whole && t.bytes >= cuts.partBytes)
}

// next begins a new part.
func (t *table[T]) next() { t.first, t.groups, t.bytes, t.size = t.last+1, 0, 0, 0 }

func (t *table[T]) clear() error {
	names, err := t.parts()
	if err != nil {
		return err
	}
	for _, n := range names {
		if err := os.Remove(filepath.Join(t.dir, n)); err != nil {
			return err
		}
	}
	*t = table[T]{name: t.name, dir: t.dir, run: t.run, axes: t.axes, w: t.w, first: 1}
	return nil
}

// parts are the names of the parts in order; what is left of a write that was cut short is removed.
func (t *table[T]) parts() ([]string, error) {
	ents, err := os.ReadDir(t.dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range ents {
		switch n := e.Name(); {
		case strings.HasPrefix(n, tmpPrefix):
			if err := os.Remove(filepath.Join(t.dir, n)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			}
		case strings.HasSuffix(n, ".parquet"):
			names = append(names, n)
		}
	}
	slices.Sort(names)
	return names, nil
}

func (t *table[T]) load(name string) error {
	f, err := openFile(filepath.Join(t.dir, name))
	if err != nil {
		return err
	}
	defer f.Close()
	m := meta{f: f.File}
	if m.int(keySchema) != rows.Schema || m.text(keyRun) != t.run || m.text(keyTable) != t.name {
		return fmt.Errorf("%s: of another run or version", name)
	}
	t.first, t.last, t.groups = m.int(keyFirst), m.int(keyLast), int(m.int(keyGroups))
	t.taken = int(m.int(keyRows))
	total, tail, _ := strings.Cut(m.text(keyBytes), " ")
	t.bytes, _ = strconv.ParseInt(total, 10, 64)
	t.tail, _ = strconv.ParseInt(tail, 10, 64)
	t.size = f.Size()
	if m.err != nil {
		return m.err
	}
	gs := f.RowGroups()
	if t.groups > len(gs) {
		return fmt.Errorf("%s: %d row groups, of which %d are full", name, len(gs), t.groups)
	}
	for _, g := range gs[t.groups:] {
		if err := readRows(g, func(rs []T) error { t.rows = append(t.rows, rs...); return nil }); err != nil {
			return err
		}
	}
	return nil
}

// add takes a row.
func (t *table[T]) add(row T) {
	t.rows = append(t.rows, row)
	t.taken++
	t.dirty = true
}

// full reports whether a row group is complete, once an entry of n bytes has been taken.
func (t *table[T]) full(n int) bool {
	t.bytes += int64(n)
	t.tail += int64(n)
	return t.taken >= cuts.groupRows || t.tail >= cuts.groupBytes
}

// refresh writes a new version of the open part if there is something new. last is the last journal entry that has been taken.
func (t *table[T]) refresh(last int64, final bool) error {
	if t.exists && !t.dirty {
		return nil
	}
	return t.publish(last, false, final)
}

// publish writes the open part anew: the full row groups as they are, then the rows since. With whole, these make a full
// row group of their own, and perhaps the part is complete.
func (t *table[T]) publish(last int64, whole, sync bool) error {
	path := t.path()
	groups := t.groups
	if whole && len(t.rows) > 0 {
		groups++
	}
	done := t.complete(groups, whole)
	size, err := replace(path, sync || done, func(out io.Writer) error {
		w := t.encoder()
		w.Reset(out)
		if t.groups > 0 {
			old, err := openFile(path)
			if err != nil {
				return err
			}
			defer old.Close()
			for _, g := range old.RowGroups()[:t.groups] {
				if _, err := w.WriteRowGroup(g); err != nil {
					return err
				}
			}
		}
		if _, err := w.Write(t.rows); err != nil {
			return err
		}
		t.describe(w, last, groups, whole)
		return w.Close()
	})
	if err != nil {
		return fmt.Errorf("parquet: writing %s: %w", filepath.Join(t.name, filepath.Base(path)), err)
	}
	t.last, t.size, t.dirty, t.exists = last, size, false, true
	if whole {
		t.groups = groups
		t.drop()
	}
	if done {
		t.next()
	}
	return nil
}

// drop forgets the rows in memory.
func (t *table[T]) drop() {
	clear(t.rows)
	t.rows, t.taken, t.tail = t.rows[:0], 0, 0
}

// describe says in the file's metadata what a later writer has to know.
func (t *table[T]) describe(w encoder[T], last int64, groups int, whole bool) {
	taken, tail := t.taken, t.tail
	if whole {
		taken, tail = 0, 0
	}
	w.SetKeyValueMetadata(keySchema, strconv.Itoa(rows.Schema))
	w.SetKeyValueMetadata(keyRun, t.run)
	w.SetKeyValueMetadata(keyTable, t.name)
	w.SetKeyValueMetadata(keyFirst, strconv.FormatInt(t.first, 10))
	w.SetKeyValueMetadata(keyLast, strconv.FormatInt(last, 10))
	w.SetKeyValueMetadata(keyGroups, strconv.Itoa(groups))
	w.SetKeyValueMetadata(keyRows, strconv.Itoa(taken))
	w.SetKeyValueMetadata(keyBytes, fmt.Sprintf("%d %d", t.bytes, tail))
}

func (t *table[T]) path() string { return filepath.Join(t.dir, fmt.Sprintf("%012d.parquet", t.first)) }

// A meta reads a file's metadata; the first error stays.
type meta struct {
	f   *parquet.File
	err error
}

func (m *meta) text(key string) string {
	v, ok := m.f.Lookup(key)
	if !ok && m.err == nil {
		m.err = fmt.Errorf("no %s in the metadata", key)
	}
	return v
}

func (m *meta) int(key string) int64 {
	n, err := strconv.ParseInt(m.text(key), 10, 64)
	if err != nil && m.err == nil {
		m.err = fmt.Errorf("%s in the metadata: %w", key, err)
	}
	return n
}
