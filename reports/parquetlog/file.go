package parquetlog

import (
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/parquet-go/parquet-go"

	"github.com/evalrun/evalrun/internal/fsutil"
)

// tmpPrefix begins the names of files that are being written. DuckDB, pandas and polars do not see
// them: their names do not end in .parquet either.
const tmpPrefix = ".new-"

// replace writes a file beside path and renames it, so that a reader sees the old one or the new
// one, whole. With sync, it and its name are on the disk then: a part that will not be written
// again is. The open part is not: after a power failure it may be empty, is then found to be, and
// made again from the journal.
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

// readRows hands the rows of g to f, a few at a time; f may keep them, but not the slice.
func readRows[T any](g parquet.RowGroup, f func([]T) error) error {
	r := parquet.NewGenericRowGroupReader[T](g)
	defer r.Close()
	buf := make([]T, 256)
	for {
		clear(buf) // the reader leaves what is null as it is
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
