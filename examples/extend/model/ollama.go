// Package ollama is a vendor of models for evalrun: it speaks Ollama's own protocol, POST
// /api/chat, over plain HTTP. A client sends one request and classifies its failure; evalrun
// retries, limits, counts and records.
//
// Images are not sent. What only some servers take is given under params: extra and sent as an
// option.
package ollama

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/model"
)

// DefaultURL is where a server on this machine listens.
const DefaultURL = "http://localhost:11434"

const maxReply = 64 << 20

// A Model calls one model. It is safe for several goroutines.
type Model struct {
	s   model.Service
	url string
}

// New checks what a configuration says. It calls nobody.
func New(s model.Service) (*Model, error) {
	u, err := url.Parse(cmp.Or(s.BaseURL, DefaultURL))
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, errors.New("ollama: the base URL is not of the form http(s)://host[:port]")
	}
	if s.Timeout <= 0 {
		s.Timeout = 10 * time.Minute
	}
	return &Model{s, u.JoinPath("api/chat").String()}, nil
}

func (m *Model) Info() model.Info {
	return model.Info{Vendor: "ollama", Name: m.s.Name, Window: m.s.Window, Tools: true}
}

// The protocol, as far as it is used.
type (
	request struct {
		Model    string         `json:"model"`
		Messages []message      `json:"messages"`
		Tools    []tool         `json:"tools,omitempty"`
		Options  map[string]any `json:"options,omitempty"`
		Stream   bool           `json:"stream"`
	}
	message struct {
		Role     string `json:"role"`
		Content  string `json:"content"`
		Thinking string `json:"thinking,omitempty"`
		Calls    []call `json:"tool_calls,omitempty"`
		ToolName string `json:"tool_name,omitempty"`
	}
	call struct {
		Function struct {
			Name      string          `json:"name"`
			Arguments json.RawMessage `json:"arguments"`
		} `json:"function"`
	}
	tool struct {
		Type     string   `json:"type"`
		Function function `json:"function"`
	}
	function struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Parameters  json.RawMessage `json:"parameters"`
	}
	reply struct {
		Model   string   `json:"model"`
		Message *message `json:"message"`
		Reason  string   `json:"done_reason"`
		In      int64    `json:"prompt_eval_count"`
		Out     int64    `json:"eval_count"`
		Error   string   `json:"error"`
	}
)

var errSlow = errors.New("no whole reply in time")

// Generate makes one try.
func (m *Model) Generate(ctx context.Context, req *model.Request) (*model.Response, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	body, err := m.body(req)
	if err != nil {
		return nil, &model.Error{Class: model.Invalid, Err: err}
	}
	try, cancel := context.WithTimeoutCause(ctx, m.s.Timeout, errSlow)
	defer cancel()
	status, header, raw, err := m.post(try, body)
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("calling %s: %w", m.s.Name, context.Cause(ctx))
	case status >= 400:
		return nil, m.refused(status, header, raw)
	case errors.Is(context.Cause(try), errSlow):
		return nil, m.failed("%v (%v)", errSlow, m.s.Timeout)
	case err != nil:
		return nil, m.failed("%v", err)
	}
	var r reply
	if err := json.Unmarshal(raw, &r); err != nil {
		return nil, m.failed("the reply is not JSON: %v", err)
	}
	if r.Message == nil {
		return nil, m.failed("the reply has no message")
	}
	out := &model.Response{
		Model: cmp.Or(r.Model, m.s.Name), Reasoning: r.Message.Thinking, Stop: cmp.Or(r.Reason, "stop"),
		Usage: event.Usage{In: r.In, Out: r.Out}, Raw: raw, RawReq: body,
	}
	if r.Message.Content != "" {
		out.Parts = event.Text(r.Message.Content)
	}
	for i, c := range r.Message.Calls { // the protocol has no IDs
		out.Calls = append(out.Calls, event.ReplyCall{ID: fmt.Sprintf("call_%d", i), Name: c.Function.Name,
			Args: string(c.Function.Arguments)})
		out.Stop = "tool_calls"
	}
	return out, nil
}

func (m *Model) body(req *model.Request) ([]byte, error) {
	r := request{Model: m.s.Name, Options: options(req.Params.Over(m.s.Params))}
	for _, x := range req.Messages {
		msg := message{Role: x.Role, Content: event.PlainText(x.Parts)}
		for _, p := range x.Parts {
			if p.Blob != nil {
				return nil, errors.New("images cannot be sent to ollama; say images: false of the model")
			}
		}
		if x.Role == model.ToolRole {
			msg.ToolName = x.Name
		}
		for _, c := range x.Calls {
			var out call
			out.Function.Name, out.Function.Arguments = c.Name, json.RawMessage(c.Args)
			if !json.Valid(out.Function.Arguments) { // another model wrote them
				out.Function.Arguments = json.RawMessage(`{}`)
			}
			msg.Calls = append(msg.Calls, out)
		}
		r.Messages = append(r.Messages, msg)
	}
	for _, t := range req.Tools {
		r.Tools = append(r.Tools, tool{"function", function{t.Name, t.Description, t.Schema}})
	}
	return json.Marshal(r)
}

func options(p model.Params) map[string]any {
	o := map[string]any{}
	if p.Temperature != nil {
		o["temperature"] = *p.Temperature
	}
	if p.TopP != nil {
		o["top_p"] = *p.TopP
	}
	if p.MaxTokens != nil {
		o["num_predict"] = *p.MaxTokens
	}
	if p.Seed != nil {
		o["seed"] = *p.Seed
	}
	if p.Stop != nil {
		o["stop"] = p.Stop
	}
	for k, v := range p.Extra {
		o[k] = v
	}
	return o
}

func (m *Model) post(ctx context.Context, body []byte) (status int, h http.Header, raw []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, m.url, bytes.NewReader(body))
	if err != nil {
		return 0, nil, nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	if m.s.Key != "" {
		req.Header.Set("Authorization", "Bearer "+m.s.Key)
	}
	for k, v := range m.s.Headers {
		req.Header.Set(k, v)
	}
	res, err := m.s.HTTP.Do(req)
	if err != nil {
		return 0, nil, nil, err
	}
	defer res.Body.Close()
	raw, err = io.ReadAll(io.LimitReader(res.Body, maxReply+1))
	if err == nil && len(raw) > maxReply {
		err = fmt.Errorf("the reply is larger than %d bytes", maxReply)
	}
	return res.StatusCode, res.Header, raw, err
}

// failed is the error of a try that brought no whole reply. It may be tried again.
func (m *Model) failed(format string, args ...any) error {
	return &model.Error{Class: model.Network, Err: errors.New(m.clean(fmt.Sprintf(format, args...)))}
}

// refused is the error of an answer with an HTTP error status.
func (m *Model) refused(status int, h http.Header, raw []byte) error {
	var r reply
	json.Unmarshal(raw, &r) // another body says nothing
	said := ""
	if strings.Contains(r.Error, "context length") {
		said = model.Context
	}
	return &model.Error{
		Class: model.Classify(status, said), HTTP: status, After: model.RetryAfter(h, time.Now()),
		Err: errors.New(m.clean(cmp.Or(r.Error, http.StatusText(status)))),
	}
}

// clean makes a line of a service's words, without the key.
func (m *Model) clean(text string) string {
	if m.s.Key != "" {
		text = strings.ReplaceAll(text, m.s.Key, "…")
	}
	return strings.Join(strings.Fields(text), " ")
}
