package journal

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/evalrun/evalrun/harness/journal/journaltest"
	"github.com/evalrun/evalrun/harness/record"
)

// Entries of interrupted attempts can be read after any number of crashes, until their trial is
// decided.
func TestCutOffAttemptsSurviveReopening(t *testing.T) {
	dir := t.TempDir()
	// Many segments, so that some are compressed.
	opts := Options{Ballast: -1, LowWater: -1, SegmentBytes: 2 << 10}
	j, err := Open(dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	add := func(es ...record.Entry) {
		t.Helper()
		for _, e := range es {
			if err := j.Append(t.Context(), e); err != nil {
				t.Fatal(err)
			}
		}
		if err := j.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	reopen := func() {
		t.Helper()
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		if j, err = Open(dir, opts); err != nil {
			t.Fatal(err)
		}
	}
	defer func() { j.Close() }()
	count := func(n int) int {
		var kinds []string
		for e, err := range j.Attempt(t.Context(), "t", n) {
			if err != nil {
				return -1
			}
			kinds = append(kinds, e.Kind)
		}
		if !slices.Contains(kinds, record.KindEvent) {
			t.Errorf("attempt %d: %v", n, kinds)
		}
		return len(kinds)
	}
	for n := 1; n <= 3; n++ {
		add(journaltest.Begin("t", n, int64(n)))
		for i := range 10 {
			add(journaltest.Entry(record.KindEvent, "t", n, int64(n), fmt.Sprintf(`{"n":%d}`, i)))
			add(journaltest.Begin("other", i+1+10*n, int64(i+1+10*n)),
				journaltest.Entry(record.KindEvent, "other", i+1+10*n, int64(i+1+10*n),
					fmt.Sprintf(`{"s":"%0500d"}`, i)))
		}
		reopen()
		if n < 3 {
			add(journaltest.Verdict("t", n, int64(n), false, record.Canceled))
		}
		for k := 1; k <= n; k++ {
			want := 12
			if k == 3 {
				want = 11
			}
			if got := count(k); got != want {
				t.Errorf("after attempt %d: attempt %d has %d entries, want %d", n, k, got, want)
			}
		}
	}
	add(journaltest.Verdict("t", 3, 3, true, record.Scored))
	for k := 1; k <= 3; k++ {
		if got := count(k); got != -1 {
			t.Errorf("attempt %d of a decided trial has %d entries", k, got)
		}
	}
}

// A scan from any entry is the tail of the whole scan.
func TestScanFrom(t *testing.T) {
	dir := t.TempDir()
	j, err := Open(dir, Options{Ballast: -1, LowWater: -1, SegmentBytes: 2 << 10})
	if err != nil {
		t.Fatal(err)
	}
	for n := range 20 {
		id := fmt.Sprint("t", n)
		es := []record.Entry{journaltest.Begin(id, 1, 1)}
		for i := range 5 {
			es = append(es, journaltest.Entry(record.KindEvent, id, 1, 1, fmt.Sprintf(`{"n":%d,"pad":"%0100d"}`, i, i)))
		}
		for _, e := range append(es, journaltest.Verdict(id, 1, 1, true, record.Scored)) {
			if err := j.Append(t.Context(), e); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if segs, err := segments(dir); err != nil || len(segs) < 5 {
		t.Fatalf("%d segments, %v: too few for this test", len(segs), err)
	}
	for from := int64(1); from <= 141; from++ {
		next := from
		for e, err := range ScanFrom(dir, from) {
			if err != nil || e.Seq != next {
				t.Fatalf("from %d: entry %d, %v; want %d", from, e.Seq, err, next)
			}
			next++
		}
		if next != 141 {
			t.Fatalf("from %d: ended at %d", from, next)
		}
	}
}

// Trial yields the same entries of a trial as a whole scan, for compressed and other segments.
func TestTrialIsThePartOfAScan(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, size := range []int64{4 << 10, 40 << 10, 0} {
		dir := t.TempDir()
		opts := Options{Ballast: -1, LowWater: -1, SegmentBytes: size, NoSync: true}
		j, err := Open(dir, opts)
		if err != nil {
			t.Fatal(err)
		}
		ids := []string{"t1", "t2", "00000000000000000003", `odd "id"`}
		attempt := map[string]int{}
		add := func(e record.Entry) {
			if err := j.Append(t.Context(), e); err != nil {
				t.Fatal(err)
			}
		}
		for _, id := range ids {
			attempt[id] = 1
			add(journaltest.Begin(id, 1, 1))
		}
		for range 600 {
			id := ids[rng.IntN(len(ids))]
			n := attempt[id]
			switch rng.IntN(20) {
			case 0: // its process died, or its attempt failed
				if rng.IntN(2) == 0 {
					add(journaltest.Verdict(id, n, int64(n), false, record.Infra))
				}
				attempt[id]++
				add(journaltest.Begin(id, n+1, int64(n+1)))
			case 1:
				add(journaltest.Entry(record.KindStage, id, n, int64(n), `{"index":0}`))
			default:
				add(journaltest.Entry(record.KindEvent, id, n, int64(n),
					fmt.Sprintf(`{"trial":"t1","pad":"%0*d"}`, rng.IntN(300), 7)))
			}
		}
		n := attempt["t2"]
		add(journaltest.Verdict("t2", n, int64(n), true, record.Scored))
		add(journaltest.Entry(record.KindAmend, "t2", n, int64(n), `{"why":"x"}`))
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		want := map[string][]record.Entry{}
		for e, err := range Scan(dir) {
			if err != nil {
				t.Fatal(err)
			}
			want[e.Trial] = append(want[e.Trial], e)
		}
		for _, id := range append(ids, "none") {
			var got []record.Entry
			for e, err := range Trial(dir, id) {
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, e)
			}
			if !reflect.DeepEqual(got, want[id]) {
				t.Errorf("segments of %d bytes, trial %s: %d entries, want %d", size, id, len(got), len(want[id]))
			}
		}
	}
}
