package journaltest

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"sync"

	"github.com/evalrun/evalrun/harness/journal/internal/admit"
	"github.com/evalrun/evalrun/harness/ledger"
	"github.com/evalrun/evalrun/harness/record"
)

// Memory is a record.Journal that stores all entries in memory. It accepts and refuses the same
// entries as the journal on disk. The zero value is ready to use.
type Memory struct {
	mu      sync.Mutex
	index   *admit.Index
	entries []record.Entry
	synced  int
	err     error
}

var _ record.Journal = (*Memory)(nil)

func (m *Memory) Append(_ context.Context, e record.Entry) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return m.err
	}
	if m.index == nil {
		m.index = admit.New()
	}
	if err := admit.Complete(&e); err != nil {
		return err
	}
	if _, err := m.index.Admit(&e); err != nil {
		return err
	}
	e.Seq = int64(len(m.entries)) + 1
	m.entries = append(m.entries, e)
	return nil
}

func (m *Memory) Sync(context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err == nil {
		m.synced = len(m.entries)
	}
	return m.err
}

func (m *Memory) Attempt(_ context.Context, trial string, number int) iter.Seq2[record.Entry, error] {
	return func(yield func(record.Entry, error) bool) {
		m.mu.Lock()
		open := m.index != nil && m.index.Find(trial, number) != nil
		entries := m.entries
		m.mu.Unlock()
		past := false
		for _, e := range entries {
			if v := ledger.ReadOutcome(e.Data); e.Trial == trial && e.Kind == record.KindVerdict {
				past = v.Final && !v.Closes()
			}
		}
		if !open && past {
			for _, e := range entries {
				if e.Trial == trial && e.Attempt == number && !admit.IsControl(e.Kind) && !yield(e, nil) {
					return
				}
			}
			return
		}
		if !open {
			yield(record.Entry{}, fmt.Errorf("journal: reading attempt %d of trial %s: %w", number, trial,
				record.ErrNotOpen))
			return
		}
		for _, e := range entries {
			if e.Trial == trial && e.Attempt == number && e.Kind != record.KindAmend && !yield(e, nil) {
				return
			}
		}
	}
}

// Fail makes all later calls fail with err, as a full disk would.
func (m *Memory) Fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.err = err
}

// Entries returns all appended entries, in order.
func (m *Memory) Entries() []record.Entry {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.entries)
}

// Synced returns the entries that would survive a crash now.
func (m *Memory) Synced() []record.Entry {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.entries[:m.synced])
}
