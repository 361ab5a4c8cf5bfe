package cdp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	_ "embed"
)

// remoteObject is a value of a page's JavaScript.
type remoteObject struct {
	Object string          `json:"objectId"`
	Type   string          `json:"type"`
	Value  json.RawMessage `json:"value"`
	Text   string          `json:"description"`
}

// evalResult decodes the response of an evaluation.
func evalResult(raw []byte) (remoteObject, error) {
	var a struct {
		Result    remoteObject `json:"result"`
		Exception *struct {
			Text   string       `json:"text"`
			Object remoteObject `json:"exception"`
		} `json:"exceptionDetails"`
	}
	if err := json.Unmarshal(raw, &a); err != nil {
		return remoteObject{}, fmt.Errorf("the browser's answer: %w", err)
	}
	if e := a.Exception; e != nil {
		text := e.Object.Text
		if text == "" {
			text = e.Text
			if len(e.Object.Value) > 0 {
				text = string(e.Object.Value)
			}
		}
		return remoteObject{}, &Thrown{text}
	}
	return a.Result, nil
}

// value waits for an evaluation and decodes its value into out, which may be nil.
func (q *Pending) value(ctx context.Context, out any) error {
	raw, err := q.Wait(ctx)
	if err != nil {
		return err
	}
	r, err := evalResult(raw)
	if err != nil || out == nil || len(r.Value) == 0 {
		return err
	}
	return json.Unmarshal(r.Value, out)
}

// Evaluate evaluates an expression in the page's own script context, waits for it if it is a
// promise, and decodes its value into out, which may be nil. If a new document is loading, it waits
// for it.
func (p *Page) Evaluate(ctx context.Context, expression string, out any) error {
	id, err := p.context(ctx, p.mainFrame(), func(f *frame) int { return f.mainContext })
	if err != nil {
		return err
	}
	q, err := p.c.b.Start(p.session, "Runtime.evaluate",
		evaluate{Expression: expression, Context: id, ByValue: true, Await: true, Gesture: true})
	if err != nil {
		return err
	}
	return q.value(ctx, out)
}

// Call calls a function ("(a, b) => …") in the page's own script context with arguments that can be
// encoded as JSON. Otherwise it works like Evaluate.
func (p *Page) Call(ctx context.Context, function string, out any, args ...any) error {
	id, err := p.context(ctx, p.mainFrame(), func(f *frame) int { return f.mainContext })
	if err != nil {
		return err
	}
	q, err := p.c.b.Start(p.session, "Runtime.callFunctionOn",
		callFunction{Function: function, Context: id, Arguments: arguments(args), ByValue: true, Await: true,
			Gesture: true})
	if err != nil {
		return err
	}
	return q.value(ctx, out)
}

// Title returns the title of the page's document.
func (p *Page) Title(ctx context.Context) (title string, err error) {
	tools, err := p.tools(ctx, p.mainFrame())
	if err != nil {
		return "", err
	}
	return title, p.callMethod(ctx, tools, "title", &title)
}

// HTML returns the page's current document as HTML.
func (p *Page) HTML(ctx context.Context) (html string, err error) {
	tools, err := p.tools(ctx, p.mainFrame())
	if err != nil {
		return "", err
	}
	return html, p.callMethod(ctx, tools, "html", &html)
}

type evaluate struct {
	Expression string `json:"expression"`
	Context    int    `json:"contextId,omitempty"`
	ByValue    bool   `json:"returnByValue,omitempty"`
	Await      bool   `json:"awaitPromise,omitempty"`
	Gesture    bool   `json:"userGesture,omitempty"`
}

type callFunction struct {
	Function  string     `json:"functionDeclaration"`
	Object    string     `json:"objectId,omitempty"`
	Context   int        `json:"executionContextId,omitempty"`
	Arguments []argument `json:"arguments,omitempty"`
	ByValue   bool       `json:"returnByValue,omitempty"`
	Await     bool       `json:"awaitPromise,omitempty"`
	Gesture   bool       `json:"userGesture,omitempty"`
}

type argument struct {
	Value  any    `json:"value,omitempty"`
	Object string `json:"objectId,omitempty"`
}

// objectRef is an argument that refers to an object of the page by its ID.
type objectRef string

func arguments(args []any) []argument {
	all := make([]argument, len(args))
	for i, a := range args {
		if o, ok := a.(objectRef); ok {
			all[i].Object = string(o)
			continue
		}
		if a == nil {
			a = json.RawMessage("null")
		}
		all[i].Value = a
	}
	return all
}

// context returns the ID of a frame's script context. Between two documents it waits for the next
// one.
func (p *Page) context(ctx context.Context, f *frame, which func(*frame) int) (id int, err error) {
	if f == nil {
		return 0, errNoFrame
	}
	expected := func() {}
	err = p.c.wait(ctx, func() (bool, error) {
		switch {
		case p.closed:
			return false, ErrGone
		case p.crashed:
			return false, p.crashError()
		case f.detached:
			return false, errNoFrame
		}
		if id = which(f); id == 0 {
			expected()
			expected = p.c.b.expectEvent(p.session) // so that a hanging page is detected
		}
		return id != 0, nil
	})
	expected()
	return id, err
}

var errCrashed = fmt.Errorf("%w: its process has died", ErrGone)

//go:embed tools.js
var toolsScript string

//go:embed mark_elements.js
var marksScript string

// tools returns the object of tools.js in a frame's isolated world, which finds and checks
// elements.
func (p *Page) tools(ctx context.Context, f *frame) (string, error) {
	id, err := p.context(ctx, f, func(f *frame) int { return f.isolatedContext })
	if err != nil {
		return "", err
	}
	p.c.mu.Lock()
	have := f.toolsObject
	p.c.mu.Unlock()
	if have != "" {
		return have, nil
	}
	raw, err := p.call(ctx, "Runtime.evaluate", evaluate{Expression: toolsScript, Context: id})
	if err != nil {
		return "", err
	}
	r, err := evalResult(raw)
	if err != nil {
		return "", err
	}
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	if f.isolatedContext == id {
		f.toolsObject = r.Object
	}
	return r.Object, nil
}

// startMethod starts a call of a method of one of our objects.
func (p *Page) startMethod(on, method string, args ...any) (*Pending, error) {
	return p.c.b.Start(p.session, "Runtime.callFunctionOn",
		callFunction{Function: "function(...a){return this." + method + "(...a)}", Object: on,
			Arguments: arguments(args),
			ByValue:   true, Await: true})
}

// sendMethod calls a method of one of our objects and ignores the result.
func (p *Page) sendMethod(on, method string) {
	p.c.b.Send(p.session, "Runtime.callFunctionOn",
		callFunction{Function: "function(){return this." + method + "()}", Object: on})
}

// startMethodRef is startMethod for a method that returns an object, by reference.
func (p *Page) startMethodRef(on, method string, args ...any) (*Pending, error) {
	return p.c.b.Start(p.session, "Runtime.callFunctionOn",
		callFunction{Function: "function(...a){return this." + method + "(...a)}", Object: on,
			Arguments: arguments(args)})
}

// callMethod calls a method of one of our objects and waits for its value.
func (p *Page) callMethod(ctx context.Context, on, method string, out any, args ...any) error {
	q, err := p.startMethod(on, method, args...)
	if err != nil {
		return err
	}
	return q.value(ctx, out)
}

// exceptionText returns the text of a script's exception. The bool says whether err is one.
func exceptionText(err error) (string, bool) {
	var t *Thrown
	if !errors.As(err, &t) {
		return "", false
	}
	return t.Text, true
}
