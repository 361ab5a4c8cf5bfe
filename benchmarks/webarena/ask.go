package webarena

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"image/png"
	"sync"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/model"
	"github.com/evalrun/evalrun/benchmarks"
)

// Roles of the models that grade.
const (
	roleGrader    = "grader"
	roleCaptioner = "captioner"
)

// asker sends questions to one of the run's models, which meters them. Each question is sent once
// per episode: the score is computed after every step, and most steps change nothing that is
// graded.
type asker struct {
	h    benchmarks.Host
	role string

	mu      sync.Mutex
	answers map[string]string // by the request's hash
}

func (a *asker) ask(ctx context.Context, messages []model.Message) (string, error) {
	zero, one, tokens := 0.0, 1.0, int64(768)
	req := &model.Request{Messages: messages, Params: model.Params{Temperature: &zero, TopP: &one, MaxTokens: &tokens}}
	key := req.Hash()
	a.mu.Lock()
	defer a.mu.Unlock()
	if said, ok := a.answers[key]; ok {
		return said, nil
	}
	m, err := a.h.Model(a.role)
	if err != nil {
		return "", err
	}
	r, err := m.Generate(ctx, req)
	// some models take no sampling parameters
	if e := (*model.Error)(nil); errors.As(err, &e) && e.Class == model.Invalid {
		r, err = m.Generate(ctx, &model.Request{Messages: messages})
	}
	if err != nil {
		return "", a.blame(ctx, err)
	}
	if a.answers == nil {
		a.answers = map[string]string{}
	}
	a.answers[key] = event.PlainText(r.Parts)
	return a.answers[key], nil
}

// blame attributes every failure of a grading model to its provider. A prompt that is refused or
// too long is not the agent's fault here; from the agent's own model the same errors would be.
func (a *asker) blame(ctx context.Context, err error) error {
	var e *model.Error
	if ctx.Err() != nil || !errors.As(err, &e) || e.Class != model.Refused && e.Class != model.Context {
		return fmt.Errorf("asking the %s: %w", a.role, err)
	}
	return &model.Error{Class: model.Overload, HTTP: e.HTTP, ID: e.ID,
		Err: fmt.Errorf("the %s did not answer: %w", a.role, e.Err)}
}

// grader is a Judge.
type grader struct{ *asker }

func (g grader) Ask(ctx context.Context, system, user string) (string, error) {
	return g.ask(ctx, []model.Message{{Role: model.System, Parts: event.Text(system)},
		{Role: model.User, Parts: event.Text(user)}})
}

// captioner is a Captioner that makes one call per picture.
type captioner struct{ *asker }

func (c captioner) Ask(ctx context.Context, pictures []image.Image, question string) ([]string, error) {
	var out []string
	for _, p := range pictures {
		var b bytes.Buffer
		if err := png.Encode(&b, p); err != nil {
			return nil, fmt.Errorf("a picture for the %s: %w", c.role, err)
		}
		blob, err := c.h.Log().PutBlob(ctx, "image/png", &b)
		if err != nil {
			return nil, fmt.Errorf("a picture for the %s: %w", c.role, err)
		}
		said, err := c.ask(ctx, []model.Message{
			{Role: model.User, Parts: []event.Part{{Blob: &blob}, {Text: question}}}})
		if err != nil {
			return nil, err
		}
		out = append(out, said)
	}
	return out, nil
}
