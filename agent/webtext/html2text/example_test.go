package html2text_test

import (
	"fmt"

	"github.com/evalrun/evalrun/agent/webtext/html2text"
)

// A page becomes Markdown, as the agents that were measured with it have read it.
func ExampleConvert() {
	fmt.Println(html2text.Convert(`<h1>Prices</h1><p>One <b>apple</b>: &euro;2 <a href="/more">more</a></p>`))
	// Output:
	// # Prices
	//
	// One **apple** : €2 [more](/more)
}
