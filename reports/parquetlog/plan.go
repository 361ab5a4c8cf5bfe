package parquetlog

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/reports/schema"
)

// writePlan writes the tables that are known before anything runs.
func writePlan(root string, p *record.Plan, names []string) error {
	arms, tasks := schema.OfPlan(p)
	return errors.Join(
		writeAll(newTable(root, "arms", p.Run,
			axes[schema.Arm]{names, func(a *schema.Arm) map[string]string { return a.Axes }}), arms),
		writeAll(newTable(root, "tasks", p.Run, axes[schema.Task]{}), tasks),
	)
}

// writeAll writes a table as a single part.
func writeAll[T any](t *table[T], rs []T) error {
	if err := os.MkdirAll(t.dir, 0o777); err != nil {
		return fmt.Errorf("parquet: %w", err)
	}
	_, err := replace(t.path(), true, func(f *os.File) error {
		out := bufio.NewWriterSize(f, 64<<10)
		w := t.encoder()
		w.Reset(out)
		for len(rs) > 0 {
			n := min(len(rs), cuts.groupRows)
			if _, err := w.Write(rs[:n]); err != nil {
				return err
			}
			if err := w.Flush(); err != nil {
				return err
			}
			rs = rs[n:]
		}
		for _, kv := range t.about(0, 0, true) {
			w.SetKeyValueMetadata(kv.Key, kv.Value)
		}
		if err := w.Close(); err != nil {
			return err
		}
		return out.Flush()
	})
	if err != nil {
		return fmt.Errorf("parquet: writing %s: %w", t.name, err)
	}
	return nil
}

// Names used next to the directory parquet during Rebuild.
const (
	rebuilding = ".parquet-new"
	replaced   = ".parquet-old"
)

// swap replaces the directory dir with next. After a crash between the two renames, the old one is
// still there and repair restores it.
func swap(next, dir string) error {
	old := filepath.Join(filepath.Dir(dir), replaced)
	if err := os.RemoveAll(old); err != nil {
		return err
	}
	if err := os.Rename(dir, old); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Rename(next, dir); err != nil {
		return err
	}
	return os.RemoveAll(old)
}

// repair creates dir, and cleans up after a crash during Rebuild.
func repair(dir string) error {
	old := filepath.Join(filepath.Dir(dir), replaced)
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		if err := os.Rename(old, dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := os.RemoveAll(old); err != nil {
		return err
	}
	if err := os.RemoveAll(filepath.Join(filepath.Dir(dir), rebuilding)); err != nil {
		return err
	}
	return os.MkdirAll(dir, 0o777)
}
