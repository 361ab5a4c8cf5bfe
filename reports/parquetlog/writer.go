// Package parquetlog writes what a run's journal says as Parquet: the tables trials, attempts,
// events, model_calls, scores, tests, tasks and arms, each a folder of parts below the run folder's
// parquet/. docs/schema.md describes their columns.
//
// A [Writer] takes the journal's entries as they become durable and can be behind by seconds;
// readers may look at any time. It is derived: [Rebuild] makes everything again from the journal,
// and a Writer that is opened after a crash goes on where the files end. Memory depends on the
// attempts that are open and on the size of a row group, never on what is done.
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

// Options of a Writer. The zero value is good.
type Options struct {
	// Every is how often the files are brought up to date while rows come; less often where that
	// would cost more than a twentieth of the time. 0 means 2 s.
	Every time.Duration
	Log   *slog.Logger // entries that make no row; nil: nobody is told
	// Journal reads the journal from an entry on, and Last is its last entry. Tables that are not
	// of this journal, or of another state of it than they say (somebody has copied parts of a
	// folder), are made anew. With a nil Journal they are trusted.
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
	room    sync.Cond // there is room in the queue, or nobody is there to empty it
	queue   []record.Entry
	bytes   int // of the queue's data
	wake    chan struct{}
	flush   []chan error
	closing bool
	err     error // the first failure; nothing is written after it

	done chan struct{}
	tables
}

// tables belong to the writer's goroutine.
type tables struct {
	build    *schema.Builder
	batch    schema.Batch
	seen     int64  // the last entry that was added
	last     int64  // the last entry whose rows are taken: ahead of seen where files were there before
	mark     string // of it
	saved    int64  // the last entry that all files hold
	trials   trials
	attempts *table[schema.Attempt]
	events   *table[schema.Event]
	calls    *table[schema.ModelCall]
	scores   *table[schema.Score]
	tests    *table[schema.Test]
	plan     func() error // writes arms and tasks; nil when done
}

// queueBytes bounds what waits to be written. Whoever adds more waits too.
const queueBytes = 8 << 20

// Open begins to write the tables of the run in dir, or goes on with them. The caller then adds all
// entries from [Writer.From] on.
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

// From is the first entry of the journal that the writer has to be given. Where it is behind the
// journal's last one, there is nothing to catch up with. An entry that is added twice makes no row
// twice.
func (w *Writer) From() int64 { return w.from }

// Add takes entries in the order of the journal, durable ones. It keeps their data, but not the
// slice. It waits while more than a few megabytes are not yet written, and never fails: what goes
// wrong is told by Flush and Close, and can be made good by Rebuild.
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

// Flush returns when the files hold everything that was added before.
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

// Close writes what is left and ends the writer. It may be called again.
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
	w.fail(w.publish(false)) // so that readers find every table from the beginning
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

// pause is the time to the next version: a twentieth of the time at most goes into versions, and a
// few megabytes a second onto the disk.
func (w *Writer) pause(took time.Duration) time.Duration {
	const perSecond = 4 << 20
	size := w.trials.size + w.attempts.size + w.events.size + w.calls.size + w.scores.size + w.tests.size
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

// take makes rows of entries. A row group that is complete is written at once.
func (w *Writer) take(es []record.Entry) error {
	for i := range es {
		e := &es[i]
		if e.Seq <= w.seen {
			continue
		}
		w.seen = e.Seq
		w.batch.Reset()
		// of entries seen before, attempts may have begun before From
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

// publish brings all files up to date, what a trial consists of before the trial. Then it says so,
// in a file that a later writer trusts.
func (w *Writer) publish(final bool) error {
	if w.plan != nil {
		if err := w.plan(); err != nil {
			return err
		}
		w.plan = nil
	}
	for _, f := range []func(int64, bool) error{
		w.events.refresh, w.calls.refresh, w.tests.refresh, w.scores.refresh, w.attempts.refresh, w.trials.refresh,
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

// all are the tables that grow.
func (t *tables) all() []grown {
	return []grown{t.events, t.calls, t.tests, t.scores, t.attempts, t.trials}
}

// A grown is what a table is to its writer.
type grown interface {
	title() string
	resume(state) (bool, error)
	clear() error
	state() tableState
	behind(tableState) bool
}

// A state says how far all files are. It is written after them.
type state struct {
	Last int64 `json:"last"` // they hold every entry up to this one
	Low  int64 `json:"low"`  // a later writer has to see the entries from here on: an attempt that was open began here
	// Mark tells entry Last from that of another journal.
	Mark   string                `json:"mark,omitempty"`
	Tables map[string]tableState `json:"tables,omitempty"`
}

// A tableState is what was there of a table when the state was written. Later there may be more,
// never less.
type tableState struct {
	Parts int   `json:"parts"`
	Last  int64 `json:"last"` // the last entry that the last part names
}

// mark is what an entry is told by. Data is not in it: its form may change with the version that
// reads it.
func mark(e *record.Entry) string {
	return e.Time.UTC().Format("2006-01-02T15:04:05.000000Z") + " " + e.Kind + " " + e.Trial
}

// stateName begins with a dot, so that no reader takes it for a part.
const stateName = ".state.json"

func (w *Writer) save(s state, sync bool) error {
	_, err := replace(filepath.Join(w.dir, stateName), sync,
		func(out *os.File) error { return json.NewEncoder(out).Encode(s) })
	return err
}

// open opens all tables. A table that cannot be trusted begins anew, and the writer then wants the
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

// strange says why tables are not what the journal and their state say; "": they are.
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

// Version is the newest evalrun.schema of the tables of the run in dir; 0: there are none, or none
// that can be read.
func Version(dir string) int {
	newest := 0
	dir = filepath.Join(dir, "parquet")
	tables, _ := os.ReadDir(dir)
	for _, table := range tables {
		parts, _ := os.ReadDir(filepath.Join(dir, table.Name()))
		for _, part := range slices.Backward(parts) {
			if strings.HasSuffix(part.Name(), ".parquet") { // the last part: all have its version
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

// Rebuild makes all tables of the run in dir again from the whole journal. The old ones stay until
// the new ones are complete.
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
