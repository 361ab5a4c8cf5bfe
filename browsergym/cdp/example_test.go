package cdp_test

import (
	"context"
	"fmt"
	"log"

	"github.com/evalrun/evalrun/browsergym/cdp"
)

// A browser, a context of its own as a private window has, a page, and input as a user's.
func Example() {
	ctx := context.Background()
	browser, err := cdp.Launch(ctx, cdp.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer browser.Close()
	window, err := browser.NewContext(ctx, cdp.ContextOptions{})
	if err != nil {
		log.Fatal(err)
	}
	page, err := window.NewPage(ctx)
	if err != nil {
		log.Fatal(err)
	}
	if err := page.Goto(ctx, `data:text/html,<button onclick="document.title='pressed'">Press</button>`); err != nil {
		log.Fatal(err)
	}
	if err := page.Select("button").Click(ctx, cdp.Click{}); err != nil {
		log.Fatal(err)
	}
	title, err := page.Title(ctx)
	fmt.Println(title, err)
}
