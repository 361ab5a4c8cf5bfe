package parquetlog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"

	"github.com/evalrun/evalrun/reports/schema"
)

// limits determine where parts are split. They count rows and journal bytes, never time, so that
// the same journal always gives the same parts.
type limits struct {
	groupRows  int   // rows of a row group
	groupBytes int64 // journal bytes that a row group covers, approximately
	partGroups int   // row groups of a part
	partBytes  int64 // journal bytes that a part covers, approximately
}

// cuts is a variable for the tests only. The size of a row group bounds the rows held in memory;
// the size of a part bounds the data copied for each new version.
var cuts = limits{groupRows: 4096, groupBytes: 4 << 20, partGroups: 32, partBytes: 32 << 20}

// Keys of a file's metadata.
const (
	keySchema = "evalrun.schema" // version of the tables
	keyRun    = "evalrun.run"
	keyTable  = "evalrun.table"
	keyFirst  = "evalrun.first"  // the part holds the rows of the journal entries from here …
	keyLast   = "evalrun.last"   // … to here
	keyGroups = "evalrun.groups" // number of full row groups
	// journal bytes in total, and in the rows after the full row groups
	keyBytes = "evalrun.bytes"
	keyRows  = "evalrun.rows" // rows added after the full row groups
)

// A table is a directory of parts. The last part is open: it is rewritten under the same name with
// the rows added since, while its earlier row groups keep their offsets (see [part]).
//
// A part is named after the first journal entry that it may contain, such as 000000000001.parquet.
// A name thus stands for a range of the journal that never shrinks and never overlaps another
// part's. A reader with an older directory listing finds at least the rows that existed then, and
// none twice.
//
// Rows are kept in memory until they fill a row group. Those already published are in small row
// groups, which the full row group later replaces.
type table[T any] struct {
	name string
	dir  string
	run  string
	axes axes[T] // the zero value for most tables

	w encoder[T]

	part        // last version of the open part
	small []int // number of rows of each of its row groups that are not full
	rows  []T   // not yet in a full row group
	// rows added since the last full row group, including rows that were replaced since
	taken  int
	first  int64 // first entry of the open part
	last   int64 // last entry of the open part's last version
	full   int   // number of full row groups in the open part
	bytes  int64 // journal bytes in the open part
	tail   int64 // journal bytes since the last full row group
	dirty  bool  // rows were added or changed since the last version
	exists bool  // a part exists on disk
	size   int64 // size of the last version in bytes
	shown  int64 // last entry according to the last part's metadata
	count  int   // number of parts
}

// An encoder is the interface of parquet.GenericWriter.
type encoder[T any] interface {
	Reset(io.Writer)
	Write([]T) (int, error)
	Flush() error
	SetKeyValueMetadata(key, value string)
	Close() error
}

func newTable[T any](root, name, run string, ax axes[T]) *table[T] {
	t := &table[T]{name: name, dir: filepath.Join(root, name), run: run, axes: ax}
	t.next()
	return t
}

// encoder creates the encoder on first use: a run of one second does not need most of them before
// its end.
func (t *table[T]) encoder() encoder[T] {
	if t.w == nil {
		t.w = t.newEncoder()
	}
	return t.w
}

func (t *table[T]) newEncoder() encoder[T] {
	opts := []parquet.WriterOption{
		parquet.Compression(codec),
		parquet.CreatedBy("evalrun", strconv.Itoa(schema.Schema), ""),
		parquet.DictionaryMaxBytes(1 << 20),
		parquet.WriteBufferSize(64 << 10),
		parquet.PageBufferSize(256 << 10),
		// Long texts do not benefit from statistics, and every reader accepts small ones.
		parquet.ColumnIndexSizeLimit(func([]string) int { return 32 }),
	}
	if t.axes.names == nil {
		return parquet.NewGenericWriter[T](nil, opts...)
	}
	return t.axes.writer(opts)
}

// resume determines where an earlier writer stopped, and loads the rows that are not in a full row
// group. It returns false if there are no files or they cannot be trusted; the table then starts
// over.
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
	t.exists, t.shown, t.count = true, t.last, len(names)
	if t.complete(len(t.rows) == 0) {
		t.next()
	}
	t.last = max(t.last, st.Last)
	return true, nil
}

func (t *table[T]) title() string { return t.name }

// state returns the minimum that a later writer must find.
func (t *table[T]) state() tableState { return tableState{Parts: t.count, Last: t.shown} }

// behind reports whether the files are older than a state that was written after them.
func (t *table[T]) behind(st tableState) bool { return t.count < st.Parts || t.shown < st.Last }

// complete reports whether the part accepts no more rows: because of its number of full row groups,
// or, if whole is set and no rows follow them, because of its size.
func (t *table[T]) complete(whole bool) bool {
	return t.full >= cuts.partGroups || (whole && t.bytes >= cuts.partBytes)
}

// next starts a new part.
func (t *table[T]) next() {
	t.first, t.full, t.bytes, t.size = t.last+1, 0, 0, 0
	t.part, t.small = part{end: int64(len(magic))}, nil
}

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
	*t = table[T]{name: t.name, dir: t.dir, run: t.run, axes: t.axes, w: t.w}
	t.next()
	return nil
}

// parts returns the names of the parts in order, and removes leftovers of interrupted writes.
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
	path := filepath.Join(t.dir, name)
	f, err := openFile(path)
	if err != nil {
		return err
	}
	defer f.Close()
	m := meta{f: f.File}
	if m.int(keySchema) != schema.Schema || m.text(keyRun) != t.run || m.text(keyTable) != t.name {
		return fmt.Errorf("%s: of another run or version", name)
	}
	t.first, t.last, t.full = m.int(keyFirst), m.int(keyLast), int(m.int(keyGroups))
	t.taken = int(m.int(keyRows))
	total, tail, _ := strings.Cut(m.text(keyBytes), " ")
	t.bytes, _ = strconv.ParseInt(total, 10, 64)
	t.tail, _ = strconv.ParseInt(tail, 10, 64)
	if m.err != nil {
		return m.err
	}
	none, err := encode(t.encoder(), []T(nil))
	if err != nil {
		return err
	}
	have, size, err := t.part.load(path)
	if err != nil {
		return err
	}
	if !reflect.DeepEqual(none.meta.Schema, have.Schema) {
		// written by an older evalrun: all row groups of a file need the same columns
		return fmt.Errorf("%s: it has other columns", name)
	}
	t.size = size
	gs := f.RowGroups()
	if t.full > len(gs) {
		return fmt.Errorf("%s: %d row groups, of which %d are full", name, len(gs), t.full)
	}
	for _, g := range gs[t.full:] {
		t.small = append(t.small, int(g.NumRows()))
		if err := readRows(g, func(rs []T) error { t.rows = append(t.rows, rs...); return nil }); err != nil {
			return err
		}
	}
	return nil
}

// add adds a row.
func (t *table[T]) add(row T) {
	t.rows = append(t.rows, row)
	t.taken++
	t.dirty = true
}

// fills records an entry of n bytes and reports whether the row group is now full.
func (t *table[T]) fills(n int) bool {
	t.bytes += int64(n)
	t.tail += int64(n)
	return t.taken >= cuts.groupRows || t.tail >= cuts.groupBytes
}

// refresh writes a new version of the open part if it has changed. last is the last journal entry
// that was added. If final is set, this part and all other parts are packed.
func (t *table[T]) refresh(last int64, final bool) error {
	if !final {
		if t.exists && !t.dirty {
			return nil
		}
		return t.publish(last, false, false)
	}
	if !t.exists || t.dirty || len(t.small) > 1 {
		t.small = nil
		if err := t.publish(last, false, true); err != nil {
			return err
		}
	}
	names, err := t.parts()
	if err != nil {
		return err
	}
	for _, n := range names {
		if err := pack(filepath.Join(t.dir, n)); err != nil {
			return fmt.Errorf("parquet: packing %s: %w", filepath.Join(t.name, n), err)
		}
	}
	return nil
}

// publish rewrites the open part with its existing row groups and the new rows. If whole is set,
// all rows in memory form one full row group, which may complete the part.
func (t *table[T]) publish(last int64, whole, sync bool) error {
	shown := 0
	for _, n := range t.small {
		shown += n
	}
	keep := again(t.small, len(t.rows)-shown)
	if whole || sync {
		keep = 0
	}
	from := 0
	for _, n := range t.small[:keep] {
		from += n
	}
	b, err := encode(t.encoder(), t.rows[from:])
	if err != nil {
		return fmt.Errorf("parquet: encoding rows of %s: %w", t.name, err)
	}
	kept := t.end
	t.groups, t.small = t.groups[:t.full+keep], t.small[:keep]
	added := t.part.add(&b)
	for _, g := range b.meta.RowGroups {
		t.small = append(t.small, int(g.NumRows))
	}
	if whole {
		t.full, t.small = len(t.groups), nil
	}
	done := t.complete(whole)
	b.meta.KeyValueMetadata = t.about(last, t.full, whole)
	size, err := t.part.write(t.path(), sync || done, b.meta, grow(t.path(), kept, added))
	if err != nil {
		return fmt.Errorf("parquet: writing %s: %w", filepath.Join(t.name, filepath.Base(t.path())), err)
	}
	if t.size == 0 {
		t.count++
	}
	t.last, t.size, t.dirty, t.exists, t.shown = last, size, false, true, last
	if whole {
		t.drop()
	}
	if done {
		t.next()
	}
	return nil
}

// changed records that published rows in memory have changed, so that all of them are rewritten.
func (t *table[T]) changed() { t.small, t.dirty = nil, true }

// drop discards the rows in memory.
func (t *table[T]) drop() {
	clear(t.rows)
	t.rows, t.taken, t.tail = t.rows[:0], 0, 0
}

// about returns the file metadata that a later writer needs.
func (t *table[T]) about(last int64, groups int, whole bool) []format.KeyValue {
	taken, tail := t.taken, t.tail
	if whole {
		taken, tail = 0, 0
	}
	return []format.KeyValue{
		{Key: keySchema, Value: strconv.Itoa(schema.Schema)},
		{Key: keyRun, Value: t.run},
		{Key: keyTable, Value: t.name},
		{Key: keyFirst, Value: strconv.FormatInt(t.first, 10)},
		{Key: keyLast, Value: strconv.FormatInt(last, 10)},
		{Key: keyGroups, Value: strconv.Itoa(groups)},
		{Key: keyRows, Value: strconv.Itoa(taken)},
		{Key: keyBytes, Value: fmt.Sprintf("%d %d", t.bytes, tail)},
	}
}

func (t *table[T]) path() string { return filepath.Join(t.dir, fmt.Sprintf("%012d.parquet", t.first)) }

// A meta reads a file's metadata and keeps the first error.
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
