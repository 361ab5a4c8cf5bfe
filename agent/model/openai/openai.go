// Package openai calls OpenAI and every server that speaks its chat completions: vLLM, llama.cpp,
// Ollama, SGLang, OpenRouter, Azure's and Google's compatible end points. Start with [New] and
// [Config].
//
// It makes one try a call and waits for nothing: retry and limit are wrapped around it. It reads
// nothing from the environment. docs/decisions/model-clients.md says why it does not use the
// vendor's library.
//
// A reply is asked for whole, not streamed: nothing here shows half a reply, and a whole body is
// one thing to check, keep and replay. A dead connection shows itself by the time-out of a try; a
// body cut in the middle by its length, or by JSON that does not end.
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

// DefaultURL is where OpenAI itself listens.
const DefaultURL = "https://api.openai.com/v1"

// Config says which model is called, where and how. Only Model must be set.
type Config struct {
	Model   string
	BaseURL string            // up to and including /v1; "": DefaultURL
	Key     string            // sent as a bearer token; "": none is sent
	Headers map[string]string // sent besides; may hold secrets (api-key)
	Vendor  string            // of Info; "": "openai"
	Params  model.Params      // used where a request leaves a field out
	NoKey   string            // what to write so that a key is sent; told when the service asks for one and none was
	Timeout time.Duration     // of one try, body included; 0: 10 min
	MaxBody int64             // bytes of a reply; 0: 64 MiB

	// Window, NoImages and NoTools are for Info, and images are left out where the model takes
	// none.
	Window            int64
	NoImages, NoTools bool

	// MaxTokens names the field for Params.MaxTokens. "": "max_completion_tokens" for OpenAI
	// itself, which refuses the other for newer models; "max_tokens" elsewhere, since many servers
	// know only that.
	MaxTokens string
	// Reasoning names the field in which a model's reasoning text is sent back ("reasoning_content"
	// for DeepSeek with tools); "": it is not.
	Reasoning string

	// Blob opens what a message's part points to. Nil: what the binding says; where that has none
	// either, a request with a blob fails.
	Blob func(ctx context.Context, b event.Blob) (io.ReadCloser, error)
	// HTTP is the client to use; nil: one that [model.Transport] made. Give the same one to all
	// models behind one URL.
	HTTP *http.Client
}

// A Model makes the clients of sessions; it holds connections, and clients are free. It is safe for
// several goroutines.
type Model struct {
	cfg     Config
	host    string // for messages
	url     string
	secrets []string
}

// New checks a configuration. It calls nobody.
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
		if len(v) >= minSecret { // shorter ones are no secrets, and would blot out half of a message
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
	c := *m // all but the blobs is shared
	c.cfg.Blob = b.Blob
	return &c, nil
}

// Info says what the configuration tells of the model.
func (m *Model) Info() model.Info {
	return model.Info{
		Vendor: m.cfg.Vendor, Name: m.cfg.Model, Window: m.cfg.Window,
		Images: !m.cfg.NoImages, Tools: !m.cfg.NoTools,
	}
}

var errTry = errors.New("no whole answer in time")

// Generate makes one try.
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

// exchange is what went over the wire in one try, without headers.
type exchange struct {
	request, reply []byte
	sent           atomic.Bool // the whole request was written
	status         int
	id             string
	after          time.Duration
}

// post sends a request and reads the reply whole, so that a cut one is noticed here.
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
	if err != nil && res.StatusCode < 400 { // half an error page is still an error
		return fmt.Errorf("the reply was cut after %d bytes: %w", len(got.reply), err)
	}
	if int64(len(got.reply)) > m.cfg.MaxBody {
		return fmt.Errorf("the reply is larger than %d bytes", m.cfg.MaxBody)
	}
	return nil
}
