package openai

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/shared"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/model"
)

// maxImage is the largest image that is sent; services refuse larger ones.
const maxImage = 20 << 20

func (m *Model) params(ctx context.Context, req *model.Request) (sdk.ChatCompletionNewParams, error) {
	p := sdk.ChatCompletionNewParams{Model: m.cfg.Model}
	msgs, err := m.messages(ctx, req.Messages)
	if err != nil {
		return p, err
	}
	p.Messages = msgs
	for _, t := range req.Tools {
		f := shared.FunctionDefinitionParam{Name: t.Name}
		if t.Description != "" {
			f.Description = param.NewOpt(t.Description)
		}
		if len(t.Schema) > 0 {
			if err := json.Unmarshal(t.Schema, &f.Parameters); err != nil {
				return p, fmt.Errorf("the schema of the tool %q is no JSON object: %w", t.Name, err)
			}
		}
		p.Tools = append(p.Tools, sdk.ChatCompletionFunctionTool(f))
	}
	switch req.Choice {
	case "":
	case "auto", "none", "required":
		p.ToolChoice.OfAuto = param.NewOpt(req.Choice)
	default:
		p.ToolChoice.OfFunctionToolChoice = &sdk.ChatCompletionNamedToolChoiceParam{
			Function: sdk.ChatCompletionNamedToolChoiceFunctionParam{Name: req.Choice},
		}
	}
	m.sampling(&p, req.Params.Over(m.cfg.Params), len(req.Tools) > 0)
	return p, nil
}

func (m *Model) sampling(p *sdk.ChatCompletionNewParams, in model.Params, tools bool) {
	if in.Temperature != nil {
		p.Temperature = param.NewOpt(*in.Temperature)
	}
	if in.TopP != nil {
		p.TopP = param.NewOpt(*in.TopP)
	}
	if in.Seed != nil {
		p.Seed = param.NewOpt(*in.Seed)
	}
	if len(in.Stop) > 0 {
		p.Stop.OfStringArray = in.Stop
	}
	if in.Effort != "" {
		p.ReasoningEffort = shared.ReasoningEffort(in.Effort)
	}
	if in.Parallel != nil && tools { // refused without tools
		p.ParallelToolCalls = param.NewOpt(*in.Parallel)
	}
	extra := map[string]any{}
	if in.MaxTokens != nil {
		switch m.cfg.MaxTokens {
		case "max_tokens":
			p.MaxTokens = param.NewOpt(*in.MaxTokens)
		case "max_completion_tokens":
			p.MaxCompletionTokens = param.NewOpt(*in.MaxTokens)
		default:
			extra[m.cfg.MaxTokens] = *in.MaxTokens
		}
	}
	for k, v := range in.Extra {
		extra[k] = v
	}
	if len(extra) > 0 {
		p.SetExtraFields(extra)
	}
}

func (m *Model) messages(ctx context.Context, in []model.Message) ([]sdk.ChatCompletionMessageParamUnion, error) {
	out := make([]sdk.ChatCompletionMessageParamUnion, 0, len(in))
	// A tool message holds text only. Its images follow in a user message, after all answers to one reply: nothing may stand between those.
	var images []sdk.ChatCompletionContentPartUnionParam
	flush := func() {
		if len(images) > 0 {
			out = append(out, sdk.UserMessage(images))
			images = nil
		}
	}
	for i, msg := range in {
		if msg.Role != model.ToolRole {
			flush()
		}
		switch msg.Role {
		case model.System:
			out = append(out, sdk.SystemMessage(event.PlainText(msg.Parts)))
		case model.User:
			parts, err := m.parts(ctx, msg.Parts)
			if err != nil {
				return nil, fmt.Errorf("message %d: %w", i, err)
			}
			if len(parts) == 1 && parts[0].OfText != nil {
				out = append(out, sdk.UserMessage(parts[0].OfText.Text))
				continue
			}
			if len(parts) == 0 { // an empty list is refused
				out = append(out, sdk.UserMessage(""))
				continue
			}
			out = append(out, sdk.UserMessage(parts))
		case model.Assistant:
			out = append(out, m.assistant(msg))
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
					return nil, fmt.Errorf("message %d: %w", i, err)
				}
				if said == "" {
					said = "(the images follow)"
				}
				images = append(images, sdk.TextContentPart("Images of "+name(msg.Name)+":"))
				images = append(images, parts...)
			}
			out = append(out, sdk.ToolMessage(said, msg.CallID))
		default:
			return nil, fmt.Errorf("message %d: unknown role %q", i, msg.Role)
		}
	}
	flush()
	if len(out) == 0 {
		return nil, errors.New("a request without messages")
	}
	return out, nil
}

// opaque is what a server wants to see again: OpenRouter's reasoning_details, Google's signatures beside each call.
type opaque struct {
	Details json.RawMessage            `json:"reasoning_details,omitempty"`
	Calls   map[string]json.RawMessage `json:"extra_content,omitempty"` // by the call's id
}

func (m *Model) assistant(msg model.Message) sdk.ChatCompletionMessageParamUnion {
	var a sdk.ChatCompletionAssistantMessageParam
	if text := event.PlainText(msg.Parts); text != "" || len(msg.Calls) == 0 {
		a.Content.OfString = param.NewOpt(text)
	}
	var seen opaque
	if len(msg.Opaque) > 0 {
		_ = json.Unmarshal(msg.Opaque, &seen) // another vendor's: nothing of ours in it
	}
	for _, c := range msg.Calls {
		call := &sdk.ChatCompletionMessageFunctionToolCallParam{ID: c.ID}
		call.Function.Name = name(c.Name)
		call.Function.Arguments = c.Args
		if !json.Valid([]byte(c.Args)) {
			// Several servers parse it again and fail the request for ever. What the model wrote is quoted in the answer to the call.
			call.Function.Arguments = "{}"
		}
		if x := seen.Calls[c.ID]; len(x) > 0 {
			call.SetExtraFields(map[string]any{"extra_content": x})
		}
		a.ToolCalls = append(a.ToolCalls, sdk.ChatCompletionMessageToolCallUnionParam{OfFunction: call})
	}
	extra := map[string]any{}
	if m.cfg.Reasoning != "" && msg.Reasoning != "" {
		extra[m.cfg.Reasoning] = msg.Reasoning
	}
	if len(seen.Details) > 0 {
		extra["reasoning_details"] = seen.Details
	}
	if len(extra) > 0 {
		a.SetExtraFields(extra)
	}
	return sdk.ChatCompletionMessageParamUnion{OfAssistant: &a}
}

// name makes what a model wrote as a tool's name fit to be sent back: services refuse a request over it.
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

func (m *Model) parts(ctx context.Context, in []event.Part) ([]sdk.ChatCompletionContentPartUnionParam, error) {
	out := make([]sdk.ChatCompletionContentPartUnionParam, 0, len(in))
	for _, p := range in {
		if p.Blob == nil {
			out = append(out, sdk.TextContentPart(p.Text))
			continue
		}
		if m.cfg.NoImages || !strings.HasPrefix(p.Blob.Type, "image/") {
			out = append(out, sdk.TextContentPart(fmt.Sprintf("[%s of %d bytes left out]", orFile(p.Blob.Type), p.Blob.Size)))
			continue
		}
		data, err := m.image(ctx, *p.Blob)
		if err != nil {
			return nil, err
		}
		out = append(out, sdk.ImageContentPart(sdk.ChatCompletionContentPartImageImageURLParam{URL: data}))
	}
	return out, nil
}

func orFile(t string) string {
	if t == "" {
		return "file"
	}
	return t
}

// image reads a blob as a data URL.
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
