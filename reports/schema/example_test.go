package schema_test

import (
	"fmt"
	"log"

	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/reports/schema"
)

// Entries of a journal (journal.Scan yields them) become rows of tables.
func ExampleBuilder() {
	entries := []record.Entry{
		{Seq: 1, Trial: "t1", Attempt: 1, Kind: record.KindAttempt,
			Data: []byte(`{"arm":"a","arm_name":"careful","agent":"codeact","benchmark":"quickstart","task":"hello","repeat":1,"attempt":1}`)},
		{Seq: 2, Trial: "t1", Attempt: 1, Kind: record.KindVerdict,
			Data: []byte(`{"final":true,"status":"scored","end":"answered","reward":1}`)},
	}
	b := schema.NewBuilder("demo")
	var rows schema.Batch
	for i := range entries {
		if err := b.Add(&entries[i], &rows); err != nil {
			log.Fatal(err)
		}
	}
	for _, t := range rows.Trials {
		fmt.Println(t.Run, t.Arm, t.Benchmark, t.Task, *t.Status, *t.Reward)
	}
	// Output: demo careful quickstart hello scored 1
}
