package parquetlog

import (
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/parquet-go/parquet-go"

	"github.com/evalrun/evalrun/internal/fsutil"
)

// tmpPrefix is the prefix of files that are being written. DuckDB, pandas and polars ignore them,
// also because their names do not end in .parquet.
const tmpPrefix = ".new-"

// replace writes a temporary file next to path and renames it, so that a reader sees either the old
// or the new file, complete. If sync is set, the file and its name are on disk when replace
// returns; this is used for parts that will not be written again. The open part is not synced:
// after a power failure it may be empty, which is detected, and it is then rebuilt from the
// journal.
func replace(path string, sync bool, write func(*os.File) error) (size int64, err error) {
	tmp := filepath.Join(filepath.Dir(path), tmpPrefix+filepath.Base(path)+".tmp")
	f, err := os.Create(tmp)
	if err != nil {
		return 0, err
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(tmp)
		}
	}()
	if err := write(f); err != nil {
		return 0, err
	}
	if sync {
		if err := f.Sync(); err != nil {
			return 0, err
		}
	}
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	if err := f.Close(); err != nil {
		return 0, err
	}
	if err := os.Rename(tmp, path); err != nil {
		return 0, err
	}
	if sync {
		err = fsutil.SyncDir(filepath.Dir(path))
	}
	return st.Size(), err
}

// A file is an open Parquet file.
type file struct {
	*parquet.File
	f *os.File
}

func (f file) Close() error { return f.f.Close() }

func openFile(path string) (file, error) {
	f, err := os.Open(path)
	if err != nil {
		return file{}, err
	}
	st, err := f.Stat()
	if err == nil {
		var p *parquet.File
		if p, err = parquet.OpenFile(f, st.Size(), parquet.SkipBloomFilters(true)); err == nil {
			return file{p, f}, nil
		}
	}
	f.Close()
	return file{}, err
}

// readRows calls f with the rows of g in small batches. f may keep the rows, but not the slice.
func readRows[T any](g parquet.RowGroup, f func([]T) error) error {
	r := parquet.NewGenericRowGroupReader[T](g)
	defer r.Close()
	buf := make([]T, 256)
	for {
		clear(buf) // the reader leaves fields unchanged where a value is null
		n, err := r.Read(buf)
		if n > 0 {
			if err := f(buf[:n]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
