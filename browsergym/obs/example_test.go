package obs_test

import (
	"fmt"

	"github.com/evalrun/evalrun/browsergym/obs"
)

// Scripts, styles and marks go out of a page's HTML, and what is left is indented.
func ExamplePruneHTML() {
	fmt.Println(obs.PruneHTML(`<html><head><style>b{}</style></head><body bid="1"><div><p bid="2">Hello</p></div><script>1</script></body></html>`))
	// Output:
	// <head>
	// </head>
	// <div>
	//  Hello
	// </div>
}
