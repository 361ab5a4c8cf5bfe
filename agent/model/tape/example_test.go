package tape_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/model"
	"github.com/evalrun/evalrun/agent/model/modeltest"
	"github.com/evalrun/evalrun/agent/model/tape"
)

// What a model says is recorded once, and said again without it.
func Example() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	name := filepath.Join(dir, "tape.jsonl")
	ask := func(f model.Factory) string {
		client, err := f(model.Binding{Benchmark: "demo", Task: "hello", Repeat: 1, Role: "main"})
		if err != nil {
			log.Fatal(err)
		}
		r, err := client.Generate(context.Background(), &model.Request{
			Messages: []model.Message{{Role: model.User, Parts: event.Text("Who is there?")}},
		})
		if err != nil {
			log.Fatal(err)
		}
		return event.PlainText(r.Parts)
	}

	rec, err := tape.Create(name)
	if err != nil {
		log.Fatal(err)
	}
	vendor := modeltest.Script(model.Response{Model: "tiny-1", Parts: event.Text("It is me.")})
	fmt.Println(ask(rec.Wrap(vendor.Factory(0), model.Params{})))
	if err := rec.Close(); err != nil {
		log.Fatal(err)
	}

	played, err := tape.Open(name, tape.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer played.Close()
	fmt.Println(ask(played.Factory("func", model.Params{})))
	// Output:
	// It is me.
	// It is me.
}
