package event_test

import (
	"fmt"
	"log"

	"github.com/evalrun/evalrun/agent/event"
)

// Weighed is a kind of event of a tool of one's own.
type Weighed struct {
	Grams int `json:"grams"`
}

func (Weighed) Kind() string       { return "acme.weighed" }
func (Weighed) Class() event.Class { return event.Observation }

// A codec is a value to which anybody may add kinds. One that lacks a kind keeps it byte for byte.
func ExampleCodec() {
	codec := event.NewCodec()
	event.Register[Weighed](codec, "acme.weighed")
	e := event.New(event.FromEnvironment, Weighed{Grams: 70})
	e.ID, e.Cause = 5, 4
	line, err := codec.Append(nil, e)
	if err != nil {
		log.Fatal(err)
	}
	back, err := codec.Decode(line)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(back.Body.(Weighed).Grams, "g")
	// Output: 70 g
}
