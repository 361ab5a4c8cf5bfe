package action_test

import (
	"fmt"
	"log"

	"github.com/evalrun/evalrun/browsergym/action"
)

// What a model writes is parsed and held against what it may do; an error is for the model to read.
func ExampleSet_Parse() {
	set, err := action.New(action.Options{Subsets: []string{"bid", "nav"}})
	if err != nil {
		log.Fatal(err)
	}
	for _, text := range []string{`click('a12')`, "I will type.\n```fill(\"7\", 'it\\'s me')```", `tab_close()`} {
		calls, err := set.Parse(text)
		if err != nil {
			fmt.Println("error:", err)
			continue
		}
		for _, c := range calls {
			fmt.Println(c)
		}
	}
	// Output:
	// click('a12')
	// fill('7', "it's me")
	// error: NameError: Invalid action type 'tab_close'.
}
