package modeltest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/model"
)

// A Scenario is the behavior of the service in one test of [Conformance].
type Scenario string

// The scenarios. In an error scenario the service answers every call with that error.
const (
	Answers     Scenario = "answers"      // text "hello", 100 tokens in of which 40 cached, 20 out of which 5 reasoning
	CallsTools  Scenario = "calls tools"  // two calls: "a" with {"x":1}, "b" with the invalid JSON {"x":
	Limited     Scenario = "rate"         // asks for a wait of 2 s
	OutOfMoney  Scenario = "quota"        // the account is empty
	WrongKey    Scenario = "wrong key"    // the error message repeats the key
	Overlong    Scenario = "too long"     // the conversation is too long
	Forbids     Scenario = "filtered"     // a content filter
	Busy        Scenario = "overload"     // 529
	Breaks      Scenario = "500"          //
	Malformed   Scenario = "bad request"  //
	CutsOff     Scenario = "cut"          // half a reply
	Garbage     Scenario = "invalid JSON" //
	SaysNothing Scenario = "empty"        // a reply without choices
	Sleeps      Scenario = "slow"         // sends nothing for a minute; the client's own timeout is at most 1 s
	Waits       Scenario = "waits"        // sends nothing for a minute; the client's own timeout is longer
	Dead        Scenario = "dead host"    // no server listens
)

// Other features that a service may lack.
const (
	CachedTokens    Scenario = "cached tokens"    // the service does not count them
	ReasoningTokens Scenario = "reasoning tokens" // the service does not count them
	// BrokenArguments: arguments are values of the protocol and never invalid; "b" has {}.
	BrokenArguments Scenario = "broken arguments"
)

// Key is the key that the suite gives to clients.
const Key = "sk-test-0123456789abcdef"

// Conformance tests a vendor's client. make returns a client whose service plays a scenario. lacks
// lists the scenarios that the service cannot express and the features that it does not have.
func Conformance(t *testing.T, make func(t *testing.T, s Scenario) model.Client, lacks ...Scenario) {
	unless := func(s Scenario, n int64) int64 {
		if slices.Contains(lacks, s) {
			return 0
		}
		return n
	}
	request := func() *model.Request {
		return &model.Request{
			Messages: []model.Message{
				{Role: model.System, Parts: event.Text("Be brief.")},
				{Role: model.User, Parts: event.Text("Say hello.")},
				{Role: model.Assistant, Calls: []event.ReplyCall{{ID: "1", Name: "a", Args: `{}`}}},
				{Role: model.ToolRole, CallID: "1", Name: "a", Parts: event.Text("done")},
			},
			Tools: []model.Tool{{Name: "a", Description: "does a",
				Schema: []byte(`{"type":"object","properties":{"x":{"type":"integer"}}}`)}},
		}
	}

	t.Run(string(Answers), func(t *testing.T) {
		req := request()
		before := req.Hash()
		r, err := make(t, Answers).Generate(t.Context(), req)
		if err != nil {
			t.Fatalf("Generate: %v", err)
		}
		if got := event.PlainText(r.Parts); got != "hello" {
			t.Errorf("text %q, want hello", got)
		}
		u := r.Usage
		cached, reasoning := unless(CachedTokens, 40), unless(ReasoningTokens, 5)
		if u.In != 100 || u.Cached != cached || u.Out != 20 || u.Reasoning != reasoning {
			t.Errorf("usage %+v, want 100 in (%d cached), 20 out (%d reasoning)", u, cached, reasoning)
		}
		if r.Stop == "" || r.Model == "" || r.From != "" {
			t.Errorf("stop %q, model %q, from %q", r.Stop, r.Model, r.From)
		}
		if len(r.Raw) == 0 || len(r.RawReq) == 0 {
			t.Error("the raw request or reply is missing")
		}
		if strings.Contains(string(r.RawReq)+string(r.Raw), Key) {
			t.Error("what is kept holds the key")
		}
		if req.Hash() != before {
			t.Error("the request was changed")
		}
	})

	t.Run(string(CallsTools), func(t *testing.T) {
		r, err := make(t, CallsTools).Generate(t.Context(), request())
		if err != nil {
			t.Fatalf("Generate: %v", err)
		}
		if len(r.Calls) != 2 {
			t.Fatalf("%d calls, want 2", len(r.Calls))
		}
		if c := r.Calls[0]; c.Name != "a" || c.Args != `{"x":1}` || c.ID == "" {
			t.Errorf("first call %+v", c)
		}
		broken := `{"x":`
		if slices.Contains(lacks, BrokenArguments) {
			broken = `{}`
		}
		if c := r.Calls[1]; c.Name != "b" || c.Args != broken || c.ID == r.Calls[0].ID {
			t.Errorf("second call %+v: arguments must come as the model wrote them", c)
		}
	})

	for s, class := range map[Scenario]string{
		Limited: model.Rate, OutOfMoney: model.Quota, WrongKey: model.Auth, Overlong: model.Context,
		Forbids: model.Refused,
		Busy:    model.Overload, Breaks: model.Overload, Malformed: model.Invalid, CutsOff: model.Network,
		Garbage:     model.Network,
		SaysNothing: model.Network, Sleeps: model.Network, Dead: model.Network,
	} {
		t.Run(string(s), func(t *testing.T) {
			if slices.Contains(lacks, s) {
				t.Skip("the service has no form for this")
			}
			_, err := make(t, s).Generate(t.Context(), request())
			var e *model.Error
			if !errors.As(err, &e) {
				t.Fatalf("Generate = %v, want a *model.Error", err)
			}
			if e.Class != class {
				t.Errorf("class %q, want %q (%v)", e.Class, class, err)
			}
			if strings.Contains(err.Error(), Key) {
				t.Errorf("the error holds the key: %v", err)
			}
			if strings.ContainsAny(err.Error(), "\n\r") {
				t.Errorf("the error has several lines: %q", err)
			}
			if s == Limited && e.After != 2*time.Second {
				t.Errorf("After = %v, want 2s", e.After)
			}
		})
	}

	t.Run("context ends", func(t *testing.T) {
		stop := errors.New("stopped by the test")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(50*time.Millisecond, func() { cancel(stop) })
		begun := time.Now()
		_, err := make(t, Waits).Generate(ctx, request())
		if !errors.Is(err, stop) {
			t.Errorf("Generate = %v, want the context's cause", err)
		}
		if d := time.Since(begun); d > 10*time.Second {
			t.Errorf("returned after %v", d)
		}
		_, err = make(t, Answers).Generate(ctx, request())
		if !errors.Is(err, stop) {
			t.Errorf("Generate under an ended context = %v, want its cause", err)
		}
	})

	t.Run("at once", func(t *testing.T) {
		c := make(t, Answers)
		req := request()
		var wg sync.WaitGroup
		for range 32 {
			wg.Go(func() {
				if _, err := c.Generate(t.Context(), req); err != nil {
					t.Errorf("Generate: %v", err)
				}
			})
		}
		wg.Wait()
	})
}
