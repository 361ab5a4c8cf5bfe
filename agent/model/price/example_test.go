package price_test

import (
	"fmt"
	"log"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/model/price"
)

// Prices of one's own go before the built-in ones. A price that nobody knows is no price, and not
// 0.
func ExampleTable_With() {
	own, err := price.Parse([]byte("as_of: 2026-01-31\nmodels:\n  tiny-1: {in: 0.5, out: 2}\n"))
	if err != nil {
		log.Fatal(err)
	}
	table := price.Default().With(own)
	usd, _ := price.Cost(table.Lookup("acme/tiny-1"), event.Usage{In: 1000, Out: 100})
	fmt.Printf("$%.4f\n", *usd)
	fmt.Println(table.Lookup("nobody-knows") == nil)
	// Output:
	// $0.0007
	// true
}
