package parquet

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/evalrun/evalrun/datasets"
	"github.com/evalrun/evalrun/datasets/table"
)

// OpenFolder returns the rows of all files named *.parquet in a folder as if they were one file, in
// the order of their names. Row numbers continue from file to file. A column that a file does not
// have is null in its rows; a column that has different types in two files is an error. OpenFolder
// itself reads nothing.
func OpenFolder(path string) table.File { return &folder{path: path} }

type folder struct {
	path string

	mu     sync.Mutex
	shards []*shard // in the order of their names; nil before they are read
	names  []string // columns of all files
	at     *shard   // the file that At has open
}

// A shard is one file of a folder. It is open only while it is read, because a folder may have more
// files than a process may open.
type shard struct {
	file
	first int64 // number of its first row in the folder
}

func (d *folder) Path() string { return d.path }

func (d *folder) fatal(err error) error { return &datasets.Fatal{Place: d.path, Err: err} }

// open returns the shards. The first call reads the metadata of all files.
func (d *folder) open() ([]*shard, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.shards != nil {
		return d.shards, nil
	}
	names, err := list(d.path)
	if err != nil {
		return nil, d.fatal(err)
	}
	var shards []*shard
	type seen struct {
		column
		in string
	}
	cols := map[string]seen{}
	var order []string
	next := int64(0)
	for _, name := range names {
		s := &shard{file: file{disk: &table.Disk{Name: filepath.Join(d.path, name)}}, first: next}
		_, ft, err := s.open()
		s.disk.Close()
		if err != nil {
			return nil, err
		}
		for _, c := range ft.cols {
			was, ok := cols[c.name]
			if !ok {
				cols[c.name] = seen{c, name}
				order = append(order, c.name)
			} else if was.what() != c.what() {
				return nil, d.fatal(fmt.Errorf("column %q is %s in %s, but %s in %s: the files of a folder "+
					"have to agree", c.name, was.what(), was.in, c.what(), name))
			}
		}
		if len(order) > MaxColumns {
			return nil, d.fatal(fmt.Errorf("its files have %d columns together; at most %d are read", len(order),
				MaxColumns))
		}
		next += ft.rows
		shards = append(shards, s)
	}
	for _, s := range shards {
		s.footer.lacks(order)
	}
	d.shards, d.names = shards, order
	return shards, nil
}

// lacks adds those of names that are not in the file as null columns.
func (f *footer) lacks(names []string) {
	have := map[string]bool{}
	for _, c := range f.cols {
		have[c.name] = true
	}
	for _, name := range names {
		if !have[name] {
			f.members = append(f.members, member{name, -1})
		}
	}
	f.sort()
}

// ofMany matches the usual names of the parts of a data set.
var ofMany = regexp.MustCompile(`^(.*)-(\d{5,})-of-(\d{5,})\.parquet$`)

// otherKinds lists the suffixes of other data sets.
var otherKinds = []string{".jsonl", ".ndjson", ".csv", ".tsv", ".jsonl.gz", ".ndjson.gz", ".csv.gz", ".tsv.gz"}

// list returns the names of a folder's Parquet files in order.
func list(path string) ([]string, error) {
	entries, err := readDir(path)
	if err != nil {
		return nil, err
	}
	var names []string
	other := ""
	parts := map[string]map[string]bool{} // start of the name and number of parts → existing parts
	for _, e := range entries {
		name := e.Name()
		if strings.HasPrefix(name, ".") {
			continue
		}
		if isParquet(e) {
			names = append(names, name)
			if m := ofMany.FindStringSubmatch(name); m != nil {
				key := m[1] + "-of-" + m[3]
				if parts[key] == nil {
					parts[key] = map[string]bool{}
				}
				parts[key][m[2]] = true
			}
			continue
		}
		if slices.ContainsFunc(otherKinds, func(end string) bool { return strings.HasSuffix(name, end) }) {
			other = name
		}
		if e.IsDir() {
			if in, err := readDir(filepath.Join(path, name)); err == nil && slices.ContainsFunc(in, isParquet) {
				return nil, fmt.Errorf("its folder %s holds Parquet files too, and those of one folder are "+
					"read: name one", name)
			}
		}
	}
	switch {
	case len(names) == 0 && other != "":
		return nil, fmt.Errorf("a folder of rows holds Parquet files, but there is %s: name the file itself", other)
	case len(names) == 0:
		return nil, errors.New("there is no file named *.parquet in the folder")
	case other != "":
		return nil, fmt.Errorf("there are %s and %s: a folder of rows holds files of one kind", names[0], other)
	}
	if len(parts) > 1 {
		var all []string
		for key := range parts {
			all = append(all, strings.Split(key, "-of-")[0])
		}
		slices.Sort(all)
		return nil, fmt.Errorf("it holds the parts of several data sets (%s): put each into a folder of its own",
			strings.Join(slices.Compact(all), ", "))
	}
	for key, have := range parts {
		_, of, _ := strings.Cut(key, "-of-")
		if n, err := strconv.Atoi(of); err == nil && len(have) != n {
			return nil, fmt.Errorf("%d of the %d parts that the names tell of are there; fetch the others", len(have),
				n)
		}
	}
	slices.Sort(names)
	return names, nil
}

func isParquet(e os.DirEntry) bool { return strings.HasSuffix(e.Name(), ".parquet") }

// readDir reads a folder. If a named pipe or the like has replaced it, readDir does not block.
func readDir(path string) ([]os.DirEntry, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, errors.Unwrap(err)
	}
	defer f.Close()
	return f.ReadDir(-1)
}

func (d *folder) Columns(context.Context) ([]string, error) {
	if _, err := d.open(); err != nil {
		return nil, err
	}
	return d.names, nil
}

func (d *folder) Rows(ctx context.Context) iter.Seq2[table.Row, error] {
	return func(yield func(table.Row, error) bool) {
		shards, err := d.open()
		if err != nil {
			yield(table.Row{}, err)
			return
		}
		for _, s := range shards {
			if !s.pass(ctx, yield) {
				return
			}
		}
	}
}

// pass yields the rows of a shard and reports whether the rows of the next one are wanted.
func (s *shard) pass(ctx context.Context, yield func(table.Row, error) bool) bool {
	// a file of its own, because others may read and close the shard meanwhile
	f := &file{disk: s.disk.Again(), footer: s.footer}
	defer f.disk.Close()
	for row, err := range f.Rows(ctx) {
		row.Number += s.first
		row.Pos += s.first
		if fatal := (*datasets.Fatal)(nil); !yield(row, err) || errors.As(err, &fatal) {
			return false
		}
	}
	return ctx.Err() == nil
}

func (d *folder) At(ctx context.Context, at table.Row) (table.Row, error) {
	shards, err := d.open()
	if err != nil {
		return at, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	i, ok := slices.BinarySearchFunc(shards, at.Pos, func(s *shard, pos int64) int {
		switch {
		case s.first+s.footer.rows <= pos:
			return -1
		case s.first > pos:
			return 1
		}
		return 0
	})
	if !ok {
		return at, &datasets.BadTask{Place: d.path, Err: fmt.Errorf("no row %d", at.Pos+1)}
	}
	s := shards[i]
	if d.at != s {
		if d.at != nil {
			d.at.disk.Close()
			d.at.at = nil
		}
		d.at = s
	}
	at.Pos -= s.first
	row, err := s.At(ctx, at)
	row.Pos += s.first
	return row, err
}
