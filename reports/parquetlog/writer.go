// Package parquetlog writes a run's journal as Parquet: the tables trials, attempts, events,
// model_calls, scores, tests, changes, tasks and arms, each a directory of parts below parquet/ in the
// run directory. docs/schema.md describes their columns.
//
// A [Writer] receives the journal's entries after they have become durable, and may lag behind by
// seconds; readers may open the files at any time. The tables are derived data: [Rebuild] recreates
// all of them from the journal, and a Writer that is opened after a crash continues where the files
// end. Memory use depends on the number of open attempts and the size of a row group, not on the
// number of finished trials.
package parquetlog

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/reports/schema"
)

// Options are the options of a Writer. The zero value is usable.
type Options struct {
	// Every is the interval between updates of the files while rows arrive. The interval is longer
	// if updates would take more than a twentieth of the time. 0 means 2 s.
	Every time.Duration
	Log   *slog.Logger // logs entries that give no row; may be nil
	// Journal iterates over the journal starting at an entry, and Last is its last entry. Tables
	// that belong to another journal, or to a different state of it than they record (because part
	// of a directory was copied), are rebuilt. If Journal is nil, the tables are trusted.
	Journal func(from int64) iter.Seq2[record.Entry, error]
	Last    int64
}

// A Writer writes the tables of one run. Its methods may be called from several goroutines.
type Writer struct {
	dir   string // <run>/parquet
	every time.Duration
	log   *slog.Logger
	from  int64

	mu      sync.Mutex
	room    sync.Cond // signals space in the queue, or that nothing will empty it
	queue   []record.Entry
	bytes   int // size of the queued data
	wake    chan struct{}
	flush   []chan error
	closing bool
	err     error // first failure; nothing is written after it

	done chan struct{}
	tables
}

// tables are accessed only by the writer's goroutine.
type tables struct {
	build    *schema.Builder
	batch    schema.Batch
	seen     int64  // last entry that was added
	last     int64  // last entry whose rows were added; ahead of seen if files already existed
	mark     string // identifies entry last
	saved    int64  // last entry that all files contain
	trials   trials
	attempts *table[schema.Attempt]
	events   *table[schema.Event]
	calls    *table[schema.ModelCall]
	scores   *table[schema.Score]
	tests    *table[schema.Test]
	changes  *table[schema.Change]
	plan     func() error // writes arms and tasks; nil once done
}

// queueBytes limits the data that waits to be written. Add blocks while the limit is exceeded.
const queueBytes = 8 << 20

// Open starts writing the tables of the run in dir, or continues them. The caller then adds all
// entries starting at [Writer.From].
func Open(dir string, plan *record.Plan, o Options) (*Writer, error) {
	w := &Writer{
		dir: filepath.Join(dir, "parquet"), every: cmp.Or(o.Every, 2*time.Second), log: o.Log,
		wake: make(chan struct{}, 1), done: make(chan struct{}),
	}
	w.room.L = &w.mu
	if w.log == nil {
		w.log = slog.New(slog.DiscardHandler)
	}
	if err := repair(w.dir); err != nil {
		return nil, fmt.Errorf("parquet: %w", err)
	}
	names := axisNames(plan)
	w.tables = tables{
		build: schema.NewBuilder(plan.Run),
		trials: trials{table: newTable(w.dir, "trials", plan.Run,
			axes[schema.Trial]{names, func(t *schema.Trial) map[string]string { return t.Axes }})},
		attempts: newTable(w.dir, "attempts", plan.Run, axes[schema.Attempt]{}),
		events:   newTable(w.dir, "events", plan.Run, axes[schema.Event]{}),
		calls:    newTable(w.dir, "model_calls", plan.Run, axes[schema.ModelCall]{}),
		scores:   newTable(w.dir, "scores", plan.Run, axes[schema.Score]{}),
		tests:    newTable(w.dir, "tests", plan.Run, axes[schema.Test]{}),
		changes:  newTable(w.dir, "changes", plan.Run, axes[schema.Change]{}),
	}
	w.plan = func() error { return writePlan(w.dir, plan, names) }
	st, err := w.open(o)
	if err != nil {
		return nil, fmt.Errorf("parquet: %w", err)
	}
	w.mark = st.Mark
	w.last, w.saved, w.from, w.seen = st.Last, st.Last, st.Low, st.Low-1
	go w.run()
	return w, nil
}

// From returns the first journal entry that the writer needs. If it is after the journal's last
// entry, nothing is missing. An entry that is added twice does not give duplicate rows.
func (w *Writer) From() int64 { return w.from }

// Add queues durable entries, in journal order. It keeps their data, but not the slice. It blocks
// while more than a few megabytes are waiting to be written. It never fails: errors are returned by
// Flush and Close, and Rebuild repairs the tables.
func (w *Writer) Add(es []record.Entry) {
	if len(es) == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.bytes > queueBytes && w.err == nil && !w.closing {
		w.room.Wait()
	}
	if w.err != nil || w.closing {
		return
	}
	w.queue = append(w.queue, es...)
	for i := range es {
		w.bytes += size(&es[i])
	}
	w.kick()
}

func size(e *record.Entry) int { return len(e.Data) + 100 }

func (w *Writer) kick() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Flush returns when the files contain everything that was added before the call.
func (w *Writer) Flush() error {
	c := make(chan error, 1)
	w.mu.Lock()
	if w.closing {
		err := w.err
		w.mu.Unlock()
		return err
	}
	w.flush = append(w.flush, c)
	w.mu.Unlock()
	w.kick()
	return <-c
}

// Close writes the remaining entries and stops the writer. It may be called more than once.
func (w *Writer) Close() error {
	w.mu.Lock()
	w.closing = true
	w.room.Broadcast()
	w.mu.Unlock()
	w.kick()
	<-w.done
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// run is the writer's goroutine.
func (w *Writer) run() {
	defer close(w.done)
	timer := time.NewTimer(w.every)
	defer timer.Stop()
	w.fail(w.publish(false)) // so that readers find every table from the start
	for {
		due := false
		select {
		case <-w.wake:
		case <-timer.C:
			due = true
		}
		w.mu.Lock()
		es, waiting, closing := w.queue, w.flush, w.closing
		w.queue, w.bytes, w.flush = nil, 0, nil
		w.room.Broadcast()
		err := w.err
		w.mu.Unlock()

		if err == nil {
			err = w.take(es)
		}
		if err == nil && (due || closing || len(waiting) > 0) {
			start := time.Now()
			err = w.publish(closing)
			timer.Reset(w.pause(time.Since(start)))
		}
		w.fail(err)
		for _, c := range waiting {
			c <- err
		}
		if closing {
			return
		}
	}
}

// pause returns the time until the next version: writing versions takes at most a twentieth of the
// time, and a few megabytes per second of disk bandwidth.
func (w *Writer) pause(took time.Duration) time.Duration {
	const perSecond = 4 << 20
	size := w.trials.size + w.attempts.size + w.events.size + w.calls.size + w.scores.size + w.tests.size +
		w.changes.size
	return max(w.every, 20*took, time.Duration(size)*time.Second/perSecond)
}

func (w *Writer) fail(err error) {
	if err == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
		w.log.Error("parquet tables are no longer written; the journal has everything, and they can be made "+
			"again from it", "err", err)
	}
	w.queue, w.bytes = nil, 0
	w.room.Broadcast()
}

// take converts entries to rows. A full row group is written at once.
func (w *Writer) take(es []record.Entry) error {
	for i := range es {
		e := &es[i]
		if e.Seq <= w.seen {
			continue
		}
		w.seen = e.Seq
		w.batch.Reset()
		// of entries seen before, the attempts may have started before From
		if err := w.build.Add(e, &w.batch); err != nil && e.Seq > w.last {
			w.log.Warn("a journal entry makes no row", "err", err)
		}
		if err := w.put(e); err != nil {
			return err
		}
		if e.Seq > w.last {
			w.last, w.mark = e.Seq, mark(e)
		}
	}
	return nil
}

func (w *Writer) put(e *record.Entry) error {
	b := &w.batch
	return errors.Join(
		put(w.events, b.Events, e),
		put(w.calls, b.Calls, e),
		put(w.tests, b.Tests, e),
		put(w.changes, b.Changes, e),
		put(w.scores, b.Scores, e),
		put(w.attempts, b.Attempts, e),
		w.trials.put(b, e),
	)
}

func put[T any](t *table[T], rs []T, e *record.Entry) error {
	if len(rs) == 0 || e.Seq <= t.last {
		return nil
	}
	for _, r := range rs {
		t.add(r)
	}
	if t.fills(size(e)) {
		return t.publish(e.Seq, true, false)
	}
	return nil
}

// publish updates all files, and the tables with a trial's details before the trials. Then it
// records this in a state file that a later writer trusts.
func (w *Writer) publish(final bool) error {
	if w.plan != nil {
		if err := w.plan(); err != nil {
			return err
		}
		w.plan = nil
	}
	for _, f := range []func(int64, bool) error{
		w.events.refresh, w.calls.refresh, w.tests.refresh, w.changes.refresh, w.scores.refresh, w.attempts.refresh,
		w.trials.refresh,
	} {
		if err := f(w.last, final); err != nil {
			return err
		}
	}
	if w.saved == w.last && !final {
		return nil
	}
	w.saved = w.last
	st := state{Last: w.last, Low: w.build.Low(w.last + 1), Mark: w.mark, Tables: map[string]tableState{}}
	for _, t := range w.all() {
		st.Tables[t.title()] = t.state()
	}
	return w.save(st, final)
}

// all returns the tables that grow.
func (t *tables) all() []grown {
	return []grown{t.events, t.calls, t.tests, t.changes, t.scores, t.attempts, t.trials}
}

// grown is a table as its writer uses it.
type grown interface {
	title() string
	resume(state) (bool, error)
	clear() error
	state() tableState
	behind(tableState) bool
}

// A state records how far all files are. It is written after them.
type state struct {
	Last int64 `json:"last"` // all files contain every entry up to this one
	// first entry that a later writer must be given: the start of the oldest open attempt
	Low int64 `json:"low"`
	// Mark distinguishes entry Last from that of another journal.
	Mark   string                `json:"mark,omitempty"`
	Tables map[string]tableState `json:"tables,omitempty"`
}

// A tableState is the state of a table when the state file was written. Later there may be more
// parts and entries, never fewer.
type tableState struct {
	Parts int   `json:"parts"`
	Last  int64 `json:"last"` // last entry according to the last part's metadata
}

// mark returns a string that identifies an entry. It does not include Data, whose encoding may
// differ between versions that read it.
func mark(e *record.Entry) string {
	return e.Time.UTC().Format("2006-01-02T15:04:05.000000Z") + " " + e.Kind + " " + e.Trial
}

// stateName begins with a dot, so that no reader takes the file for a part.
const stateName = ".state.json"

func (w *Writer) save(s state, sync bool) error {
	_, err := replace(filepath.Join(w.dir, stateName), sync,
		func(out *os.File) error { return json.NewEncoder(out).Encode(s) })
	return err
}

// open opens all tables. If a table cannot be trusted it starts over, and the writer then needs the
// whole journal.
func (w *Writer) open(o Options) (state, error) {
	begin := state{Last: 0, Low: 1}
	st := begin
	if data, err := os.ReadFile(filepath.Join(w.dir, stateName)); err != nil || json.Unmarshal(data, &st) != nil ||
		st.Low < 1 || st.Last < 0 {
		st = begin
	}
	var found []grown
	for _, t := range w.all() {
		ok, err := t.resume(st)
		if err != nil {
			return state{}, err
		}
		if ok {
			found = append(found, t)
		}
	}
	if o.Journal != nil {
		if why := strange(found, st, o); why != "" {
			w.log.Warn("the tables are made anew from the journal", "why", why)
			for _, t := range found {
				if err := t.clear(); err != nil {
					return state{}, err
				}
			}
			return begin, nil
		}
	}
	if len(found) < len(w.all()) {
		return begin, nil
	}
	return st, nil
}

// strange returns why the tables do not match the journal and their state, or "".
func strange(found []grown, st state, o Options) string {
	for _, t := range found {
		switch n := t.state().Last; {
		case n > o.Last:
			return fmt.Sprintf("%s holds entries up to %d of the journal, which ends at %d", t.title(), n, o.Last)
		case t.behind(st.Tables[t.title()]):
			return t.title() + " is older than the other tables"
		}
	}
	if st.Last == 0 || len(found) == 0 {
		return ""
	}
	if st.Last > o.Last {
		return fmt.Sprintf("they hold entries up to %d of the journal, which ends at %d", st.Last, o.Last)
	}
	for e, err := range o.Journal(st.Last) {
		if err == nil && e.Seq == st.Last && mark(&e) == st.Mark {
			return ""
		}
		break
	}
	return fmt.Sprintf("entry %d of the journal is not the one that they are of", st.Last)
}

// Version returns the newest evalrun.schema of the tables in dir, or 0 if there are no readable
// tables.
func Version(dir string) int {
	newest := 0
	dir = filepath.Join(dir, "parquet")
	tables, _ := os.ReadDir(dir)
	for _, table := range tables {
		parts, _ := os.ReadDir(filepath.Join(dir, table.Name()))
		for _, part := range slices.Backward(parts) {
			// the last part: all parts of a table have its version
			if strings.HasSuffix(part.Name(), ".parquet") {
				newest = max(newest, versionOf(filepath.Join(dir, table.Name(), part.Name())))
				break
			}
		}
	}
	return newest
}

func versionOf(path string) int {
	f, err := openFile(path)
	if err != nil {
		return 0
	}
	defer f.Close()
	m := meta{f: f.File}
	if v := m.int(keySchema); m.err == nil {
		return int(v)
	}
	return 0
}

// Rebuild recreates all tables of the run in dir from the whole journal. The old tables stay in
// place until the new ones are complete.
func Rebuild(dir string, plan *record.Plan, entries iter.Seq2[record.Entry, error], o Options) (err error) {
	tmp := filepath.Join(dir, rebuilding)
	if err := os.RemoveAll(tmp); err != nil {
		return fmt.Errorf("parquet: %w", err)
	}
	defer os.RemoveAll(tmp)
	w, err := Open(tmp, plan, o)
	if err != nil {
		return err
	}
	for e, eerr := range entries {
		if eerr != nil {
			w.log.Warn("the journal has a damaged entry", "err", eerr)
			err = errors.Join(err, eerr)
			continue
		}
		w.Add([]record.Entry{e})
	}
	if cerr := w.Close(); cerr != nil {
		return cerr
	}
	if serr := swap(filepath.Join(tmp, "parquet"), filepath.Join(dir, "parquet")); serr != nil {
		return fmt.Errorf("parquet: %w", serr)
	}
	return err
}
