package launch

import (
	"encoding/json"
	"math"
	"path/filepath"
	"testing"

	"github.com/evalrun/evalrun/harness"
	"github.com/evalrun/evalrun/harness/journal"
	"github.com/evalrun/evalrun/harness/record"
)

// What a run has paid for is the sum over verdicts, amendments and Spent entries. Where an older
// version did not record the amount that a limit counts, tokens count at the dearest price.
func TestSpent(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "journal")
	j, err := journal.Open(dir, journal.Options{NoSync: true, LowWater: -1, Ballast: -1})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range []struct{ trial, kind, data string }{
		{"a", record.KindAttempt, `{}`},
		{"a", record.KindVerdict, `{"final":true,"status":"scored","spent":{"calls":2,"in":100,"out":10,"cost":0.5}}`},
		{"a", record.KindAmend, `{"other":{"calls":1,"in":100,"cost":0.25}}`}, // of an older version
		{"a", record.KindAmend, `{"other":{"calls":2,"in":200,"cost":9},"spent":{"calls":1,"in":100,"cost":0.125}}`},
		{"a", record.KindSpent, `{"usage":{"cost":null},"spent":{"calls":1,"in":100,"cost":null,"counted":0.5,"unpriced":"cached"}}`},
		{"b", record.KindAttempt, `{}`},
		// of an older version
		{"b", record.KindVerdict, `{"final":true,"status":"scored","spent":{"calls":1,"in":90000,"out":10000,"cost":null}}`},
		{"c", record.KindAttempt, `{}`},
		{"c", record.KindVerdict, `{"final":true,"status":"scored","spent":{"cost":null}}`},
	} {
		if err := j.Append(t.Context(), record.Entry{Trial: e.trial, Attempt: 1, Fence: 1, Kind: e.kind,
			Data: json.RawMessage(e.data)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	var w harness.Whole
	spent(dir, nil, &w, 10)
	if math.Abs(w.SpentCost-(0.5+0.25+0.125+0.5+1)) > 1e-9 || math.Abs(w.SpentEstimated-1.5) > 1e-9 ||
		w.SpentTokens != 110+100+100+100+100_000 {
		t.Errorf("%+v", w)
	}
}
