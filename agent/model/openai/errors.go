package openai

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/evalrun/evalrun/agent/model"
)

// failed converts the error of a try that received no complete reply.
func (m *Model) failed(try context.Context, got *exchange, err error) error {
	out := &model.Error{Class: model.Network, HTTP: got.status, ID: got.id}
	var ue *url.Error
	switch {
	case errors.Is(context.Cause(try), errTry):
		out.Err = fmt.Errorf("%w: %s had %v", errTry, m.host, m.cfg.Timeout)
	case errors.As(err, &ue):
		// the URL may contain a key, so show only the host
		out.Err = fmt.Errorf("calling %s: %s", m.host, m.clean(ue.Err.Error()))
	default:
		out.Err = fmt.Errorf("calling %s: %s", m.host, m.clean(err.Error()))
	}
	return out
}

// refusedBy returns the error of a response with an error status.
func (m *Model) refusedBy(got *exchange) error {
	code, message := readError(got.reply)
	if message == "" {
		message = http.StatusText(got.status)
	}
	err := errors.New(m.clean(message))
	if got.status == http.StatusUnauthorized && m.cfg.Key == "" && m.cfg.NoKey != "" {
		err = fmt.Errorf("no key was sent; %s: %w", m.cfg.NoKey, err)
	}
	return &model.Error{Class: model.Classify(got.status, said(code, message)), After: got.after, HTTP: got.status,
		ID: got.id, Err: err}
}

// readError extracts code and message from the formats that servers use: OpenAI's {"error":{…}},
// vLLM's flat object, {"error":"text"}, FastAPI's {"detail":…}, or plain text.
func readError(body []byte) (code, message string) {
	var flat struct {
		Error   json.RawMessage `json:"error"`
		Message string          `json:"message"`
		Type    string          `json:"type"`
		Code    any             `json:"code"`
		Detail  json.RawMessage `json:"detail"`
	}
	if json.Unmarshal(body, &flat) != nil {
		text := strings.TrimSpace(string(body))
		if strings.HasPrefix(text, "<") { // a proxy's HTML page has no useful text
			text = ""
		}
		return "", text
	}
	if len(flat.Error) > 0 {
		var text string
		if json.Unmarshal(flat.Error, &text) == nil {
			return "", text
		}
		// Some servers send a number as code, others null; fields that do not fit are skipped.
		_ = json.Unmarshal(flat.Error, &flat)
	}
	if flat.Message == "" && len(flat.Detail) > 0 {
		flat.Message = string(flat.Detail)
	}
	code = flat.Type
	if flat.Code != nil {
		code = fmt.Sprint(flat.Code) + " " + flat.Type
	}
	return strings.ToLower(code), flat.Message
}

// tooLong lists phrases for conversations that are too long, in lower case.
var tooLong = []string{
	"context_length_exceeded", "maximum context length", "context length exceeded", "context window", "context_window",
	"prompt is too long", "input is too long", "please reduce the length of", "exceeds the available context size",
	"exceed context limit", "too many input tokens", "larger than the maximum context",
}

// unwanted lists phrases for refused content.
var unwanted = []string{
	"content_filter", "content_policy", "content management policy", "responsibleaipolicyviolation", "invalid_prompt",
	"flagged as potentially violating", "safety system",
}

// noMoney lists phrases for accounts out of money or quota.
var noMoney = []string{
	"insufficient_quota", "billing_hard_limit", "billing_not_active", "insufficient balance", "insufficient_balance",
	"exceeded your current quota", "credit balance", "insufficient credits",
}

// said returns the error class that a code and a message indicate, for [model.Classify].
func said(code, message string) string {
	text := code + " " + strings.ToLower(message)
	for _, x := range []struct {
		class string
		marks []string
	}{{model.Context, tooLong}, {model.Refused, unwanted}, {model.Quota, noMoney}} {
		for _, m := range x.marks {
			if strings.Contains(text, m) {
				return x.class
			}
		}
	}
	return ""
}

// minSecret is the length of the shortest key that is removed from messages. Keys of private
// servers may be as short as "x", and removing that letter would make messages unreadable.
const minSecret = 8

// clean removes secrets from a message and truncates it to one line.
func (m *Model) clean(s string) string {
	for _, secret := range m.secrets {
		if len(secret) >= minSecret {
			s = strings.ReplaceAll(s, secret, "[secret]")
		}
	}
	s = strings.Join(strings.Fields(strings.ToValidUTF8(s, "\uFFFD")), " ")
	const limit = 500
	if r := []rune(s); len(r) > limit {
		s = string(r[:limit]) + " …"
	}
	return s
}

func requestID(h http.Header) string {
	for _, name := range []string{"X-Request-Id", "Request-Id", "Apim-Request-Id", "Cf-Ray"} {
		if v := h.Get(name); v != "" {
			return v
		}
	}
	return ""
}
