// Package openai is a client of OpenAI and of every server with an OpenAI-compatible chat
// completions API: vLLM, llama.cpp, Ollama, SGLang, OpenRouter, and the compatible end points of
// Azure and Google. Start with [New] and [Config].
//
// The client makes one try per call and never waits; packages retry and limit are wrapped around
// it. It reads nothing from the environment. docs/decisions/model-clients.md says why it does not
// use the vendor's library.
//
// Replies are not streamed. No caller uses partial replies, and a complete body is easier to check,
// store and replay. A dead connection is detected by the timeout of the try, and a truncated body
// by its length or by incomplete JSON.
package openai

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/model"
)

// DefaultURL is the address of OpenAI's own service.
const DefaultURL = "https://api.openai.com/v1"

// Config says which model is called, where and how. Only Model is required.
type Config struct {
	Model   string
	BaseURL string            // up to and including /v1; "" means DefaultURL
	Key     string            // bearer token; "" sends none
	Headers map[string]string // additional headers; may contain secrets (api-key)
	Vendor  string            // for Info; "" means "openai"
	Params  model.Params      // used for fields that a request leaves unset
	NoKey   string            // how to configure a key; shown if the service asks for one and none was sent
	Timeout time.Duration     // of one try, including the body; 0 means 10 min
	MaxBody int64             // maximum size of a reply in bytes; 0 means 64 MiB

	// Window, NoImages and NoTools are for Info. Images are left out if NoImages is set.
	Window            int64
	NoImages, NoTools bool

	// MaxTokens names the field for Params.MaxTokens. "" means "max_completion_tokens" for OpenAI
	// itself, which rejects the other name for newer models, and "max_tokens" elsewhere, because
	// many servers know only that name.
	MaxTokens string
	// Reasoning names the field in which a model's reasoning text is sent back ("reasoning_content"
	// for DeepSeek with tools). If "", the text is not sent back.
	Reasoning string

	// Blob opens the content that a message part refers to. If nil, the binding's Blob is used; if
	// that is nil too, a request with a blob fails.
	Blob func(ctx context.Context, b event.Blob) (io.ReadCloser, error)
	// HTTP is the client to use; nil means a new one made by [model.Transport]. Models behind one
	// URL should share a client.
	HTTP *http.Client
}

// A Model makes the clients of sessions. The model holds the connections; clients are cheap. It is
// safe for concurrent use.
type Model struct {
	cfg     Config
	host    string // for messages
	url     string
	secrets []string
}

// New checks the configuration and returns a Model. It makes no network requests.
func New(cfg Config) (*Model, error) {
	if cfg.Model == "" {
		return nil, errors.New("openai: no model named: say which one, as in openai/gpt-5-mini")
	}
	if cfg.BaseURL == "" {
		cfg.BaseURL = DefaultURL
	}
	u, err := url.Parse(cfg.BaseURL)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, errors.New("openai: the base URL is not of the form http(s)://host[:port]/v1")
	}
	if u.User != nil {
		return nil, errors.New("openai: the base URL holds a user or a password: give it as a key or a header")
	}
	if cfg.Vendor == "" {
		cfg.Vendor = "openai"
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = 10 * time.Minute
	}
	if cfg.MaxBody <= 0 {
		cfg.MaxBody = 64 << 20
	}
	if cfg.MaxTokens == "" {
		cfg.MaxTokens = "max_tokens"
		if u.Hostname() == "api.openai.com" {
			cfg.MaxTokens = "max_completion_tokens"
		}
	}
	if cfg.HTTP == nil {
		cfg.HTTP = model.Transport()
	}
	m := &Model{cfg: cfg, host: u.Host, url: u.JoinPath("chat/completions").String()}
	if cfg.Key != "" {
		m.secrets = append(m.secrets, cfg.Key)
	}
	for _, v := range cfg.Headers {
		if len(v) >= minSecret { // shorter values are not secrets, and removing them would make messages unreadable
			m.secrets = append(m.secrets, v)
		}
	}
	return m, nil
}

// Client is the [model.Factory].
func (m *Model) Client(b model.Binding) (model.Client, error) {
	if b.Blob == nil || m.cfg.Blob != nil {
		return m, nil
	}
	c := *m // everything but Blob is shared
	c.cfg.Blob = b.Blob
	return &c, nil
}

// Info returns what the configuration says about the model.
func (m *Model) Info() model.Info {
	return model.Info{
		Vendor: m.cfg.Vendor, Name: m.cfg.Model, Window: m.cfg.Window,
		Images: !m.cfg.NoImages, Tools: !m.cfg.NoTools,
	}
}

var errTry = errors.New("no whole answer in time")

// Generate makes one try. It implements [model.Client].
func (m *Model) Generate(ctx context.Context, req *model.Request) (*model.Response, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	body, err := m.body(ctx, req)
	if err != nil {
		return nil, &model.Error{Class: model.Invalid, Err: err}
	}
	try, cancel := context.WithTimeoutCause(ctx, m.cfg.Timeout, errTry)
	defer cancel()
	got := exchange{request: body}
	err = m.post(try, &got)
	if cause := context.Cause(ctx); cause != nil {
		return nil, m.charge(&got, fmt.Errorf("calling %s: %w", m.cfg.Model, cause))
	}
	if got.status >= 400 {
		return nil, m.charge(&got, m.refusedBy(&got))
	}
	if err != nil {
		return nil, m.charge(&got, m.failed(try, &got, err))
	}
	resp, err := m.response(&got)
	if err != nil {
		return nil, m.charge(&got, err)
	}
	return resp, nil
}

// exchange is the request and the response of one try, without headers.
type exchange struct {
	request, reply []byte
	sent           atomic.Bool // the complete request was written
	status         int
	id             string
	after          time.Duration
}

// post sends a request and reads the complete reply, so that truncation is detected here.
func (m *Model) post(ctx context.Context, got *exchange) error {
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		WroteRequest: func(info httptrace.WroteRequestInfo) {
			if info.Err == nil {
				got.sent.Store(true)
			}
		},
	})
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, m.url, bytes.NewReader(got.request))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "evalrun")
	if m.cfg.Key != "" {
		req.Header.Set("Authorization", "Bearer "+m.cfg.Key)
	}
	for k, v := range m.cfg.Headers {
		req.Header.Set(k, v)
	}
	res, err := m.cfg.HTTP.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	got.reply, err = io.ReadAll(io.LimitReader(res.Body, m.cfg.MaxBody+1))
	got.status = res.StatusCode
	got.id = requestID(res.Header)
	got.after = model.RetryAfter(res.Header, time.Now())
	if err != nil && res.StatusCode < 400 { // a truncated error page is still an error
		return fmt.Errorf("the reply was cut after %d bytes: %w", len(got.reply), err)
	}
	if int64(len(got.reply)) > m.cfg.MaxBody {
		return fmt.Errorf("the reply is larger than %d bytes", m.cfg.MaxBody)
	}
	return nil
}
