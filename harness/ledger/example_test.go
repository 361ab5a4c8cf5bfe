package ledger_test

import (
	"fmt"

	"github.com/evalrun/evalrun/harness/ledger"
	"github.com/evalrun/evalrun/harness/record"
)

// The first attempt of a trial lost its sandbox, the second was scored, and a later regrading
// corrected the score. The example computes the trial's result. In a run folder, the entries come
// from journal.Control.
func ExampleTrial() {
	entries := []record.Entry{
		{Kind: record.KindAttempt, Attempt: 1, Data: []byte(`{"attempt":1}`)},
		{Kind: record.KindVerdict, Attempt: 1, Data: []byte(`{"final":false,"status":"infra"}`)},
		{Kind: record.KindAttempt, Attempt: 2, Data: []byte(`{"attempt":2,"why":"retry"}`)},
		{Kind: record.KindVerdict, Attempt: 2,
			Data: []byte(`{"final":true,"status":"scored","end":"answered","reward":0}`)},
		{Kind: record.KindAmend, Attempt: 2,
			Data: []byte(`{"status":"scored","reward":1,"why":"the grader knew one spelling only"}`)},
	}
	var trial ledger.Trial
	for _, e := range entries {
		l := ledger.Of(&e)
		if trial.Apply(&l) == ledger.Judged {
			fmt.Printf("attempt %d: %s, to be tried again\n", e.Attempt, trial.Status())
		}
	}
	fmt.Printf("decided %t: %s by attempt %d\n", trial.Decided, trial.Status(), trial.Last)
	// Output:
	// attempt 1: infra, to be tried again
	// decided true: scored by attempt 2
}
