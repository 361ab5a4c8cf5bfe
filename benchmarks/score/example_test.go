package score_test

import (
	"fmt"
	"log"

	"github.com/evalrun/evalrun/benchmarks/score"
)

// A scorer is made once and grades many answers.
func ExampleSpec_Compile() {
	same, err := score.Spec{Scorer: score.Numeric, Right: []string{"1200"}}.Compile()
	if err != nil {
		log.Fatal(err)
	}
	for _, answer := range []string{"The total is $1,200.00", "about 1300"} {
		fmt.Println(answer, "→", same(answer).Value)
	}
	// Output:
	// The total is $1,200.00 → 1
	// about 1300 → 0
}
