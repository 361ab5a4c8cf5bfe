package openai

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"strconv"
	"strings"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/model"
)

// maxImage is the size of the largest image that is sent. Services refuse larger ones.
const maxImage = 20 << 20

// body returns the encoded request.
func (m *Model) body(ctx context.Context, req *model.Request) ([]byte, error) {
	r := chatRequest{Model: m.cfg.Model}
	var err error
	if r.Messages, err = m.messages(ctx, req.Messages); err != nil {
		return nil, err
	}
	for _, t := range req.Tools {
		f := function{Name: t.Name, Description: t.Description}
		if len(t.Schema) > 0 {
			if err := json.Unmarshal(t.Schema, &f.Parameters); err != nil {
				return nil, fmt.Errorf("the schema of the tool %q is no JSON object: %w", t.Name, err)
			}
		}
		r.Tools = append(r.Tools, tool{Function: f, Type: "function"})
	}
	switch req.Choice {
	case "":
	case "auto", "none", "required":
		r.ToolChoice = req.Choice
	default:
		r.ToolChoice = tool{Function: function{Name: req.Choice}, Type: "function"}
	}
	return encode(&r, m.sampling(&r, req.Params.Over(m.cfg.Params)))
}

// sampling sets the parameters of a request and returns those without a field.
func (m *Model) sampling(r *chatRequest, in model.Params) map[string]json.RawMessage {
	r.Temperature, r.TopP, r.Seed, r.Stop, r.ReasoningEffort = in.Temperature, in.TopP, in.Seed, in.Stop, in.Effort
	if len(r.Tools) > 0 { // services refuse the parameter without tools
		r.ParallelToolCalls = in.Parallel
	}
	further := map[string]json.RawMessage{}
	if n := in.MaxTokens; n != nil {
		switch m.cfg.MaxTokens {
		case "max_tokens":
			r.MaxTokens = n
		case "max_completion_tokens":
			r.MaxCompletionTokens = n
		default:
			further[m.cfg.MaxTokens] = strconv.AppendInt(nil, *n, 10)
		}
	}
	maps.Copy(further, in.Extra)
	return further
}

func (m *Model) messages(ctx context.Context, in []model.Message) ([]json.RawMessage, error) {
	out := make([]json.RawMessage, 0, len(in))
	add := func(msg message, further map[string]json.RawMessage) error {
		b, err := encode(&msg, further)
		out = append(out, b)
		return err
	}
	// A tool message holds only text. Its images follow in a user message after the results of all
	// calls of the reply, because no other message may come between those.
	var images []part
	flush := func() (err error) {
		if len(images) > 0 {
			err = add(message{Content: images, Role: "user"}, nil)
			images = nil
		}
		return err
	}
	one := func(msg model.Message) error {
		switch msg.Role {
		case model.System:
			return add(message{Content: event.PlainText(msg.Parts), Role: "system"}, nil)
		case model.User:
			parts, err := m.parts(ctx, msg.Parts)
			switch {
			case err != nil:
				return err
			case len(parts) == 0: // services refuse an empty list
				return add(message{Content: "", Role: "user"}, nil)
			case len(parts) == 1 && parts[0].Text != nil:
				return add(message{Content: *parts[0].Text, Role: "user"}, nil)
			}
			return add(message{Content: parts, Role: "user"}, nil)
		case model.Assistant:
			a, further, err := m.assistant(msg)
			if err != nil {
				return err
			}
			return add(a, further)
		case model.ToolRole:
			var text, blobs []event.Part
			for _, p := range msg.Parts {
				if p.Blob == nil {
					text = append(text, p)
				} else {
					blobs = append(blobs, p)
				}
			}
			said := event.PlainText(text)
			if len(blobs) > 0 && !m.cfg.NoImages {
				parts, err := m.parts(ctx, blobs)
				if err != nil {
					return err
				}
				if said == "" {
					said = "(the images follow)"
				}
				images = append(images, textPart("Images of "+name(msg.Name)+":"))
				images = append(images, parts...)
			}
			return add(message{Content: said, ToolCallID: msg.CallID, Role: "tool"}, nil)
		}
		return fmt.Errorf("unknown role %q", msg.Role)
	}
	for i, msg := range in {
		if msg.Role != model.ToolRole {
			if err := flush(); err != nil {
				return nil, err
			}
		}
		if err := one(msg); err != nil {
			return nil, fmt.Errorf("message %d: %w", i, err)
		}
	}
	if err := flush(); err != nil {
		return nil, err
	}
	if len(out) == 0 {
		return nil, errors.New("a request without messages")
	}
	return out, nil
}

// opaque is data that a server expects back: OpenRouter's reasoning_details, or Google's signatures
// next to each call.
type opaque struct {
	Details json.RawMessage            `json:"reasoning_details,omitempty"`
	Calls   map[string]json.RawMessage `json:"extra_content,omitempty"` // by the call's ID
}

func (m *Model) assistant(msg model.Message) (a message, further map[string]json.RawMessage, err error) {
	a.Role = "assistant"
	if text := event.PlainText(msg.Parts); text != "" || len(msg.Calls) == 0 {
		a.Content = text
	}
	var seen opaque
	if len(msg.Opaque) > 0 {
		_ = json.Unmarshal(msg.Opaque, &seen) // another vendor's data has none of these fields
	}
	for _, c := range msg.Calls {
		call := toolCall{ID: c.ID, Type: "function"}
		call.Function.Name = name(c.Name)
		call.Function.Arguments = c.Args
		if !json.Valid([]byte(c.Args)) {
			// Several servers parse the arguments again and fail every later request if they are
			// invalid. The answer to the call quotes what the model wrote.
			call.Function.Arguments = "{}"
		}
		var further map[string]json.RawMessage
		if x := seen.Calls[c.ID]; len(x) > 0 {
			further = map[string]json.RawMessage{"extra_content": x}
		}
		b, err := encode(&call, further)
		if err != nil {
			return a, nil, err
		}
		a.ToolCalls = append(a.ToolCalls, b)
	}
	further = map[string]json.RawMessage{}
	if m.cfg.Reasoning != "" && msg.Reasoning != "" {
		if further[m.cfg.Reasoning], err = encode(msg.Reasoning, nil); err != nil {
			return a, nil, err
		}
	}
	if len(seen.Details) > 0 {
		further["reasoning_details"] = seen.Details
	}
	return a, further, nil
}

// name converts a tool name written by a model to one that can be sent back. Services refuse
// requests with an invalid name.
func name(s string) string {
	out := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_', r == '-':
			return r
		}
		return '_'
	}, s)
	if len(out) > 64 {
		out = out[:64]
	}
	if out == "" {
		return "unnamed"
	}
	return out
}

func (m *Model) parts(ctx context.Context, in []event.Part) ([]part, error) {
	out := make([]part, 0, len(in))
	for _, p := range in {
		if p.Blob == nil {
			out = append(out, textPart(p.Text))
			continue
		}
		if m.cfg.NoImages || !strings.HasPrefix(p.Blob.Type, "image/") {
			out = append(out, textPart(fmt.Sprintf("[%s of %d bytes left out]", orFile(p.Blob.Type), p.Blob.Size)))
			continue
		}
		data, err := m.image(ctx, *p.Blob)
		if err != nil {
			return nil, err
		}
		out = append(out, part{Image: &imageURL{URL: data}, Type: "image_url"})
	}
	return out, nil
}

func textPart(s string) part { return part{Text: &s, Type: "text"} }

func orFile(t string) string {
	if t == "" {
		return "file"
	}
	return t
}

// image returns a blob as a data URL.
func (m *Model) image(ctx context.Context, b event.Blob) (string, error) {
	if m.cfg.Blob == nil {
		return "", errors.New("an image, and nobody to open it")
	}
	r, err := m.cfg.Blob(ctx, b)
	if err != nil {
		return "", fmt.Errorf("opening image %s: %w", b.SHA256, err)
	}
	defer r.Close()
	data, err := io.ReadAll(io.LimitReader(r, maxImage+1))
	if err != nil {
		return "", fmt.Errorf("reading image %s: %w", b.SHA256, err)
	}
	if len(data) > maxImage {
		return "", fmt.Errorf("image %s is larger than %d MiB", b.SHA256, maxImage>>20)
	}
	return "data:" + b.Type + ";base64," + base64.StdEncoding.EncodeToString(data), nil
}
