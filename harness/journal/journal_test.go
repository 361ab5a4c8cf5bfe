package journal_test

import (
	"testing"

	"github.com/evalrun/evalrun/harness/journal"
	"github.com/evalrun/evalrun/harness/journal/journaltest"
	"github.com/evalrun/evalrun/harness/record"
)

// scan returns a journal's entries and fails on any error value.
func scan(t *testing.T, dir string) []record.Entry {
	t.Helper()
	var out []record.Entry
	for e, err := range journal.Scan(dir) {
		if err != nil {
			t.Fatalf("scan: %v", err)
		}
		out = append(out, e)
	}
	return out
}

func open(t *testing.T, dir string, opts journal.Options) *journal.Journal {
	t.Helper()
	if opts.Ballast == 0 {
		opts.Ballast = -1
	}
	j, err := journal.Open(dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() })
	return j
}

func TestFile(t *testing.T) {
	for name, opts := range map[string]journal.Options{
		"plain":          {},
		"small buffers":  {Buffer: 1, NoSync: true},
		"small segments": {SegmentBytes: 2000},
	} {
		t.Run(name, func(t *testing.T) {
			dirs := map[record.Journal]string{}
			journaltest.Run(t, journaltest.Suite{
				New: func(t *testing.T) record.Journal {
					dir := t.TempDir()
					j := open(t, dir, opts)
					dirs[j] = dir
					return j
				},
				All: func(t *testing.T, j record.Journal) []record.Entry {
					if err := j.Sync(t.Context()); err != nil {
						t.Fatal(err)
					}
					return scan(t, dirs[j])
				},
				Reopen: func(t *testing.T, j record.Journal) record.Journal {
					if err := j.(*journal.Journal).Close(); err != nil {
						t.Fatal(err)
					}
					n := open(t, dirs[j], opts)
					if w := n.Recovered().Warnings(); len(w) > 0 {
						t.Errorf("warnings: %q", w)
					}
					dirs[n] = dirs[j]
					return n
				},
			})
		})
	}
}

func TestMemory(t *testing.T) {
	journaltest.Run(t, journaltest.Suite{
		New: func(*testing.T) record.Journal { return new(journaltest.Memory) },
		All: func(_ *testing.T, j record.Journal) []record.Entry { return j.(*journaltest.Memory).Entries() },
	})
}
