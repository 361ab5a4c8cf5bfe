package model_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/model"
	"github.com/evalrun/evalrun/agent/model/modeltest"
	"github.com/evalrun/evalrun/agent/model/retry"
)

// A polite client puts a sentence in front of every conversation. Whatever changes how a model is
// called is a client around a client.
type polite struct{ model.Client }

func (p polite) Generate(ctx context.Context, req *model.Request) (*model.Response, error) {
	r := *req // a request is not changed
	r.Messages = append([]model.Message{{Role: model.System, Parts: event.Text("Please be brief.")}}, req.Messages...)
	return p.Client.Generate(ctx, &r)
}

func ExampleClient() {
	vendor := modeltest.Func(func(_ context.Context, _ model.Binding, _ int,
		req *model.Request) (*model.Response, error) {
		return &model.Response{Parts: event.Text(fmt.Sprint(len(req.Messages), " messages"))}, nil
	})
	client := polite{vendor.Client()}
	reply, err := client.Generate(context.Background(), &model.Request{
		Messages: []model.Message{{Role: model.User, Parts: event.Text("How are you?")}},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(event.PlainText(reply.Parts))
	// Output: 2 messages
}

// The class of an error says who is at fault. Package retry retries the call if that may help.
func ExampleError() {
	busy := modeltest.Func(func(_ context.Context, _ model.Binding, n int, _ *model.Request) (*model.Response, error) {
		if n < 2 {
			return nil, &model.Error{Class: model.Overload, HTTP: 500, Err: errors.New("out of breath")}
		}
		return nil, &model.Error{Class: model.Quota, HTTP: 402, Err: errors.New("no credit left")}
	})
	client, err := retry.New(busy.Factory(0), retry.Policy{First: time.Millisecond})(model.Binding{})
	if err != nil {
		log.Fatal(err)
	}
	_, err = client.Generate(context.Background(), &model.Request{})
	var e *model.Error
	if errors.As(err, &e) {
		fmt.Println(e)
		fmt.Println("the service's fault:", e.Provider(), "· worth another try:", e.Retry(), "· the arm pauses:",
			e.Pause())
	}
	// Output:
	// model: quota (HTTP 402): no credit left
	// the service's fault: true · worth another try: false · the arm pauses: true
}
