package journal_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"

	"github.com/evalrun/evalrun/harness/journal"
	"github.com/evalrun/evalrun/harness/record"
)

// The example opens an attempt of a trial and writes its verdict; both are durable once Sync
// returns. Any process can read the journal from its folder at any time.
func Example() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	j, err := journal.Open(dir, journal.Options{Run: "demo"})
	if err != nil {
		log.Fatal(err)
	}

	ctx := context.Background()
	one := 1.0
	for _, e := range []struct {
		kind string
		data any
	}{
		{record.KindAttempt, record.Attempt{Benchmark: "quickstart", Task: "hello", Attempt: 1}},
		{record.KindVerdict, record.Verdict{Final: true, Status: record.Scored, End: record.Answered, Reward: &one}},
	} {
		data, err := json.Marshal(e.data)
		if err != nil {
			log.Fatal(err)
		}
		if err := j.Append(ctx, record.Entry{Trial: "t1", Attempt: 1, Fence: 1, Kind: e.kind, Data: data}); err != nil {
			log.Fatal(err)
		}
	}
	if err := j.Sync(ctx); err != nil {
		log.Fatal(err)
	}
	// The trial is decided, so a late attempt is refused.
	late := record.Entry{Trial: "t1", Attempt: 1, Fence: 1, Kind: record.KindVerdict, Data: []byte("{}")}
	fmt.Println("a second verdict:", j.Append(ctx, late) != nil)
	if err := j.Close(); err != nil {
		log.Fatal(err)
	}

	for e, err := range journal.Scan(dir) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(e.Seq, e.Kind, e.Trial)
	}
	// Output:
	// a second verdict: true
	// 1 attempt t1
	// 2 verdict t1
}
