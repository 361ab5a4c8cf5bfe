package browsergym_test

import (
	"context"
	"fmt"
	"log"

	"github.com/evalrun/evalrun/browsergym"
	"github.com/evalrun/evalrun/browsergym/cdp"
	"github.com/evalrun/evalrun/browsergym/obs"
)

// press is a task: a page with a button, done when the button was pressed.
type press struct{}

func (press) Settings() browsergym.Settings { return browsergym.Settings{Width: 640, Height: 480} }

func (press) Setup(ctx context.Context, page *cdp.Page) (browsergym.Start, error) {
	err := page.Goto(ctx, `data:text/html,<button onclick="document.title='pressed'">Press me</button>`)
	return browsergym.Start{Goal: browsergym.Text("Press the button.")}, err
}

func (press) Validate(ctx context.Context, page *cdp.Page, _ []browsergym.Message) (v browsergym.Verdict, err error) {
	title, err := page.Title(ctx)
	if title == "pressed" {
		v.Reward, v.Done = 1, true
	}
	return v, err
}

func (press) Teardown(context.Context) error { return nil }

// An episode: the agent sees the page with its elements marked, acts by text, and is rewarded.
func ExampleEnv() {
	ctx := context.Background()
	browser, err := cdp.Launch(ctx, cdp.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer browser.Close()
	env, err := browsergym.New(browsergym.Options{
		Browser: browser,
		Task:    func(uint32) (browsergym.Task, error) { return press{}, nil },
	})
	if err != nil {
		log.Fatal(err)
	}
	defer env.Close(ctx)
	seen, _, err := env.Reset(ctx, 1)
	if err != nil {
		log.Fatal(err)
	}
	text, err := obs.AXText(seen.AX, seen.Properties, obs.DefaultAX())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(text) // … [3] button 'Press me'
	result, err := env.Step(ctx, `click('3')`)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("reward", result.Reward, "done", result.Terminated)
}
