package openai_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/model"
	"github.com/evalrun/evalrun/agent/model/modeltest"
	"github.com/evalrun/evalrun/agent/model/openai"
)

var hi = &model.Request{Messages: []model.Message{{Role: model.User, Parts: event.Text("hi")}}}

// A try that brings no reply says what the service bills for it, or the most that it can.
func TestCharges(t *testing.T) {
	const usage = `"usage":{"prompt_tokens":100,"completion_tokens":20,"total_tokens":120}`
	body := func(s string) modeltest.Fault { return modeltest.Body("application/json", s) }
	said := &model.Charge{Usage: event.Usage{In: 100, Out: 20}}
	bound := &model.Charge{Bound: true}
	for name, tt := range map[string]struct {
		fault modeltest.Fault
		want  *model.Charge // nil: nothing is billed
	}{
		"no choices":           {body(`{"choices":[],` + usage + `}`), said},
		"no choices, no usage": {modeltest.EmptyChoices, bound},
		"filtered": {body(`{"choices":[{"finish_reason":"content_filter","message":{"content":null}}],` +
			usage + `}`), said},
		"error in place of it":  {modeltest.WrappedRate, nil},
		"the same with usage":   {body(`{"error":{"code":502,"message":"broke"},` + usage + `}`), said},
		"status 500":            {modeltest.ServerError, nil},
		"status 500 with usage": {modeltest.RawStatus(500, `{"error":{"message":"broke"},`+usage+`}`), said},
		"status 401":            {modeltest.BadKey, nil},
		"cut before usage":      {modeltest.InvalidJSON, bound},
		"cut after usage":       {body(`{"id":"x",` + usage + `,"choices":[{"mess`), said},
		"cut inside of usage":   {body(`{"id":"x","usage":{"prompt_tokens":100,"comple`), bound},
		"usage in a text":       {body(`{"choices":[{"message":{"content":"\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":1}`), bound},
		"usage null, then said": {modeltest.Body("text/event-stream",
			`data: {"usage":null}`+"\n\ndata: {"+usage+"}\n\n"), said},
		"empty":                 {modeltest.EmptyBody, bound},
		"dropped":               {modeltest.Drop, bound},
		"too late":              {modeltest.Slow(time.Hour), bound},
		"a list":                {body(`[{"choices":[]}]`), bound},
		"an empty list":         {body(`[]`), bound},
		"a number":              {body(`3`), bound},
		"a string":              {body(`"busy"`), bound},
		"null":                  {body(`null`), bound},
		"a message, no error":   {body(`{"choices":[],"message":"well"}`), bound},
		"a message of a number": {body(`{"choices":[],"message":5}`), bound},
		"detail, no error":      {body(`{"detail":"well"}`), bound},
		"error false":           {body(`{"error":false,"message":"well"}`), bound},
		"error and choices":     {body(`{"error":"broke","choices":[{"message":{"content":5}}]}`), bound},
		"error as text":         {body(`{"error":"broke","choices":[]}`), nil},
		"error, choices null":   {body(`{"error":{"message":"broke"},"choices":null}`), nil},
		"no content":            {body(`{"choices":[{"message":{"content":5}}],` + usage + `}`), said},
		"no cost that is one":   {body(`{"choices":[],"usage":{"prompt_tokens":100,"completion_tokens":20,"cost":"much"}}`), bound},
		"the same, status 500": {modeltest.RawStatus(500,
			`{"error":{"message":"broke"},"usage":{"prompt_tokens":1,"cost":{}}}`), bound},
	} {
		t.Run(name, func(t *testing.T) {
			s := modeltest.NewServer(t, modeltest.Replies(modeltest.Reply{Fault: tt.fault}))
			timeout := time.Minute
			if name == "too late" {
				timeout = 50 * time.Millisecond
			}
			tokens := int64(77)
			c := client(t, openai.Config{BaseURL: s.URL, Timeout: timeout, Params: model.Params{MaxTokens: &tokens}})
			_, err := c.Generate(t.Context(), hi)
			var e *model.Error
			if !errors.As(err, &e) {
				t.Fatalf("%v is no model error", err)
			}
			var got *model.Charge
			if errors.As(err, &got) != (tt.want != nil) {
				t.Fatalf("%#v, want %+v", err, tt.want)
			}
			switch {
			case got == nil:
			case got.Bound != tt.want.Bound:
				t.Errorf("%+v, want %+v", got, tt.want)
			case got.Bound:
				if sent := int64(len(s.Calls()[0].Raw)); got.Usage != (event.Usage{In: sent, Out: 77}) {
					t.Errorf("%+v after a request of %d bytes", got.Usage, sent)
				}
			case got.Usage != tt.want.Usage:
				t.Errorf("%+v, want %+v", got.Usage, tt.want.Usage)
			}
		})
	}
}

// The window limits the assumed usage of a request. There is also a limit without a window and
// max_tokens.
func TestChargeBounds(t *testing.T) {
	s := modeltest.NewServer(t, modeltest.Replies(modeltest.Reply{Fault: modeltest.EmptyChoices}))
	req := &model.Request{Messages: []model.Message{{Role: model.User, Parts: event.Text(strings.Repeat("x", 5000))}}}
	for window, want := range map[int64]event.Usage{0: {Out: 131072}, 1000: {In: 1000, Out: 1000}} {
		_, err := client(t, openai.Config{BaseURL: s.URL, Window: window}).Generate(t.Context(), req)
		var got *model.Charge
		if !errors.As(err, &got) || got.Usage.Out != want.Out || want.In > 0 && got.Usage.In != want.In ||
			got.Usage.In > 6000 {
			t.Errorf("window %d: %+v", window, got)
		}
	}
}

// What was not sent is not billed; what the caller has given up may be.
func TestChargesOfUnsent(t *testing.T) {
	var c *model.Charge
	_, err := client(t, openai.Config{BaseURL: modeltest.DeadURL(t)}).Generate(t.Context(), hi)
	if errors.As(err, &c) {
		t.Errorf("nobody listens: %+v", c)
	}
	ctx, cancel := context.WithCancel(t.Context())
	s := modeltest.NewServer(t, modeltest.Replies(
		modeltest.Reply{Fault: func(_ http.ResponseWriter, r *http.Request, _ http.Handler) {
			cancel()
			<-r.Context().Done()
		}}))
	if _, err = client(t, openai.Config{BaseURL: s.URL}).Generate(ctx, hi); !errors.As(err, &c) || !c.Bound ||
		!errors.Is(err, context.Canceled) {
		t.Errorf("given up: %v", err)
	}
}

// A 401 says that no key was sent, and what to write.
func TestNoKey(t *testing.T) {
	s := modeltest.NewServer(t, modeltest.Replies(modeltest.Reply{Fault: modeltest.BadKey}))
	m, err := openai.New(openai.Config{Model: "m", BaseURL: s.URL, NoKey: "write it down"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = m.Generate(t.Context(), hi)
	var e *model.Error
	if !errors.As(err, &e) || e.Class != model.Auth ||
		!strings.Contains(err.Error(), "no key was sent; write it down: Incorrect API key") {
		t.Errorf("%v", err)
	}
}
