package parquetlog

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/parquet-go/parquet-go"

	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/reports/schema"
)

// trials is the table with one current row per trial. It grows like the others, but when a trial is
// decided again (by a rerun), its earlier row is removed from the part that contains it, and an
// amendment modifies the row in its part. Both are rare, and only the affected row groups are
// encoded again. A reader never sees a trial twice.
type trials struct {
	*table[schema.Trial]
	// trial → the entry that decided it again; the files may contain earlier rows
	again  map[string]int64
	amends map[string][]schema.Amend // of rows in the files
}

// pendingMax limits the pending changes before they are applied to the files.
const pendingMax = 4096

func (t *trials) put(b *schema.Batch, e *record.Entry) error {
	if len(b.Trials)+len(b.Amends) == 0 || e.Seq <= t.last {
		return nil
	}
	for _, a := range b.Amends {
		t.amend(a)
	}
	for _, row := range b.Trials {
		if row.Attempts > 1 { // a first attempt has no earlier row
			t.replace(row.Trial, row.Seq)
		}
		t.add(row)
	}
	full := len(b.Trials) > 0 && t.fills(size(e))
	if full || len(t.again)+len(t.amends) >= pendingMax {
		if err := t.settle(); err != nil {
			return err
		}
	}
	if full {
		return t.publish(e.Seq, true, false)
	}
	return nil
}

func (t *trials) replace(trial string, seq int64) {
	n := len(t.rows)
	t.rows = slices.DeleteFunc(t.rows, func(r schema.Trial) bool { return r.Trial == trial })
	delete(t.amends, trial)
	if len(t.rows) < n {
		t.changed()
		return // there is only one row
	}
	if t.again == nil {
		t.again = map[string]int64{}
	}
	t.again[trial] = seq
}

func (t *trials) amend(a schema.Amend) {
	for i := range t.rows {
		if t.rows[i].Trial == a.Trial {
			a.Apply(&t.rows[i])
			t.changed()
			return
		}
	}
	if t.amends == nil {
		t.amends = map[string][]schema.Amend{}
	}
	t.amends[a.Trial] = append(t.amends[a.Trial], a)
}

func (t *trials) refresh(last int64, final bool) error {
	if err := t.settle(); err != nil {
		return err
	}
	return t.table.refresh(last, final)
}

// settle applies pending replacements and amendments to the files. It runs before the new rows are
// published, so that a trial that was decided again is briefly missing instead of present twice. It
// is idempotent.
func (t *trials) settle() error {
	if len(t.again)+len(t.amends) == 0 {
		return nil
	}
	names, err := t.parts()
	if err != nil {
		return err
	}
	for _, n := range names {
		if err := t.settlePart(filepath.Join(t.dir, n)); err != nil {
			return fmt.Errorf("parquet: correcting %s: %w", filepath.Join(t.name, n), err)
		}
	}
	clear(t.again)
	clear(t.amends)
	return nil
}

func (t *trials) settlePart(path string) error {
	old, err := openFile(path)
	if err != nil {
		return err
	}
	defer old.Close()
	var p part
	meta, _, err := p.load(path)
	if err != nil {
		return err
	}
	groups, had, kept := old.RowGroups(), p.groups, p.end
	p.groups = nil
	if len(groups) != len(had) {
		return errors.New("it was changed by somebody else")
	}
	open, full := path == t.path(), 0
	var added [][]byte
	hits := 0
	for i, g := range groups {
		hit := false
		if !open || i < t.full { // later row groups are in memory and already corrected
			if hit, err = t.concerns(g); err != nil {
				return err
			}
		}
		if !hit {
			p.groups = append(p.groups, had[i])
		} else {
			hits++
			b, err := t.corrected(g)
			if err != nil {
				return err
			}
			added = append(added, p.add(&b))
		}
		if open && i < t.full {
			full = len(p.groups)
		}
	}
	if hits == 0 {
		return nil
	}
	if open {
		for i := range meta.KeyValueMetadata {
			if kv := &meta.KeyValueMetadata[i]; kv.Key == keyGroups {
				kv.Value = strconv.Itoa(full)
			}
		}
	}
	if _, err := p.write(path, true, meta, grow(path, kept, added...)); err != nil {
		return err
	}
	if open {
		t.part, t.full = p, full
	}
	return nil
}

// concerns reports whether g contains a row of a trial that was decided again or amended.
func (t *trials) concerns(g parquet.RowGroup) (bool, error) {
	col, ok := g.Schema().Lookup("trial_id")
	if !ok {
		return false, errors.New("no column trial_id")
	}
	pages := g.ColumnChunks()[col.ColumnIndex].Pages()
	defer pages.Close()
	buf := make([]parquet.Value, 256)
	for {
		p, err := pages.ReadPage()
		if errors.Is(err, io.EOF) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		values := p.Values()
		for {
			n, err := values.ReadValues(buf)
			for _, v := range buf[:n] {
				id := v.ByteArray()
				if t.again[string(id)] > 0 || len(t.amends[string(id)]) > 0 {
					parquet.Release(p)
					return true, nil
				}
			}
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return false, err
			}
		}
		parquet.Release(p)
	}
}

// corrected returns g without the replaced rows and with the amendments applied.
func (t *trials) corrected(g parquet.RowGroup) (block, error) {
	var all []schema.Trial
	err := readRows(g, func(rs []schema.Trial) error {
		rs = slices.DeleteFunc(rs, func(r schema.Trial) bool { return r.Seq < t.again[r.Trial] })
		for i := range rs {
			for _, a := range t.amends[rs[i].Trial] {
				if rs[i].Seq < a.Seq {
					a.Apply(&rs[i])
				}
			}
		}
		all = append(all, rs...)
		return nil
	})
	if err != nil {
		return block{}, err
	}
	return encode(t.encoder(), all)
}
