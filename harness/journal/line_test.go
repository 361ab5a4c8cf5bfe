package journal

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/harness/record"
)

func entry() record.Entry {
	return record.Entry{
		V: 1, Seq: 17, Time: time.Date(2026, 11, 21, 10, 0, 7, 120_000_000, time.UTC), Trial: "0123456789abcdef0123",
		Attempt: 1, Fence: 3,
		Kind: record.KindEvent, Data: []byte(`{"id":5,"text":"a\nb"}`),
	}
}

func TestLineForm(t *testing.T) {
	e := entry()
	want := `{"seq":17,"crc":"95ef7d55","e":{"v":1,"seq":17,"time":"2026-11-21T10:00:07.120000Z","trial":"0123456789abcdef0123","attempt":1,"fence":3,"kind":"event","data":{"id":5,"text":"a\nb"}}}` + "\n"
	if got := string(appendLine(nil, &e)); got != want {
		t.Errorf("line\n got %s\nwant %s", got, want)
	}
}

// The same JSON in another form, written by another program, is parsed as well.
func TestLineOtherForms(t *testing.T) {
	e := entry()
	j, err := json.Marshal(e) // other order, time without the zeros
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		Seal(17, string(j)),
		strings.Replace(Seal(17, string(j)), `{"seq":17,`, `{ "note" : 1, "seq": 17, `, 1),
	} {
		var r raw
		if err := r.parse([]byte(strings.TrimSuffix(line, "\n"))); err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		if d := cmp.Diff(e, r.toEntry(names{})); d != "" {
			t.Errorf("%s: %s", line, d)
		}
	}
}

func TestLineBad(t *testing.T) {
	e := entry()
	good := strings.TrimSuffix(string(appendLine(nil, &e)), "\n")
	for _, bad := range []string{
		"", "{}", "null", "[]", good[1:], good[:len(good)-1], good + "}",
		strings.Replace(good, `"seq":17`, `"seq":18`, 1),
		strings.Replace(good, "95ef7d55", "95EF7D55", 1), strings.Replace(good, "id", "ix", 1),
		`{"seq":1,"crc":"00000000","e":}`,
		strings.TrimSpace(Seal(1, `{"v":1,"seq":2,"time":"2026-11-21T10:00:07.120000Z","kind":"event","data":1}`)),
		strings.TrimSpace(Seal(1, `{"v":1,"seq":1,"time":"2026-13-21T10:00:07.120000Z","kind":"event","data":1}`)),
		strings.TrimSpace(Seal(1, `{"v":1,"seq":"1"}`)),
	} {
		var r raw
		if err := r.parse([]byte(bad)); err == nil {
			t.Errorf("taken: %s", bad)
		}
	}
}

// Parsing is the inverse of writing, for any input.
func FuzzRoundTrip(f *testing.F) {
	f.Add("t", "event", []byte(`{"a":1}`), 1, int64(1), int64(1), int64(1_700_000_000_000_000))
	f.Add("é\"\\", "x\n", []byte("{\n}"), -5, int64(math.MinInt64), int64(math.MaxInt64), int64(0))
	f.Fuzz(func(t *testing.T, trial, kind string, data []byte, attempt int, fence, seq, us int64) {
		e := record.Entry{V: 1, Seq: seq, Time: time.UnixMicro(us % 200_000_000_000_000_000).UTC(), Trial: trial,
			Attempt: attempt, Fence: fence, Kind: kind, Data: data}
		if !json.Valid(data) || e.Time.Year() < 0 || e.Time.Year() > 9999 {
			return
		}
		line := appendLine(nil, &e)
		if n := bytes.IndexByte(line, '\n'); n != len(line)-1 {
			t.Fatalf("a line break at %d of %q", n, line)
		}
		var r raw
		if err := r.parse(line[:len(line)-1]); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		got := r.toEntry(names{})
		e.Trial, e.Kind = strings.ToValidUTF8(trial, "\ufffd"), strings.ToValidUTF8(kind, "\ufffd")
		if len(e.Trial) != len(got.Trial) && !strings.Contains(trial, "\xff") {
			e.Trial = got.Trial // a run of invalid bytes becomes one replacement character or several
		}
		if got.Seq != e.Seq || got.Attempt != e.Attempt || got.Fence != e.Fence || !got.Time.Equal(e.Time) {
			t.Fatalf("%+v, want %+v", got, e)
		}
		if !bytes.Equal(bytes.TrimSpace(bytes.ReplaceAll(data, []byte("\n"), []byte(" "))), bytes.TrimSpace(got.Data)) {
			t.Fatalf("data %q, want %q", got.Data, data)
		}
		var std struct{ E record.Entry }
		if err := json.Unmarshal(line, &std); err != nil {
			t.Fatalf("%q is not JSON: %v", line, err)
		}
		if std.E.Seq != got.Seq || std.E.Trial != got.Trial || std.E.Kind != got.Kind || !std.E.Time.Equal(got.Time) {
			t.Fatalf("encoding/json reads %+v, we %+v", std.E, got)
		}
	})
}

// No line makes the reader panic, with a correct checksum or not. If the fast parser accepts a line
// of JSON, the slow one gives the same result.
func FuzzParse(f *testing.F) {
	e := entry()
	f.Add(appendLine(nil, &e), false)
	f.Add([]byte(`{"v":1,"seq":1,"time":"2026-11-21T10:00:07.120000Z","trial":"x","kind":"event","data":{}}`), true)
	f.Fuzz(func(t *testing.T, in []byte, seal bool) {
		if seal {
			in = []byte(strings.TrimSuffix(Seal(1, string(in)), "\n"))
		}
		var fast, slow raw
		ok, err := fast.fast(in)
		if !ok || err != nil || !json.Valid(in) || bytes.Count(in, []byte(`"data"`)) != 1 {
			_ = slow.slow(in)
			return
		}
		if err := slow.slow(in); err != nil {
			t.Fatalf("%q: %v", in, err)
		}
		if d := cmp.Diff(slow.toEntry(names{}), fast.toEntry(names{})); d != "" {
			t.Fatalf("%q: %s", in, d)
		}
	})
}
