package openai

import (
	"errors"
	"strings"
	"unicode"

	"github.com/evalrun/evalrun/agent/model"
)

// Kind is the vendor's entry in a registry.
var Kind = model.Kind{
	Name: "openai", Doc: "OpenAI, and every server that speaks its chat completions (base_url)",
	KeyVar: "OPENAI_API_KEY", URLVar: "OPENAI_BASE_URL", URL: DefaultURL, Headers: usualHeaders,
	Open: func(s model.Service) (model.Factory, error) {
		m, err := New(Config{
			Model: s.Name, BaseURL: s.BaseURL, Key: s.Key, NoKey: s.NoKey, Headers: s.Headers, Params: s.Params,
			Window: s.Window, NoImages: s.NoImages, Timeout: s.Timeout, HTTP: s.HTTP,
		})
		if err != nil {
			return nil, err
		}
		return m.Client, nil
	},
}

// usualHeaders returns the additional headers that the vendor's own clients take from environment
// variables.
func usualHeaders(lookup func(string) (string, bool)) (map[string]string, error) {
	out := map[string]string{}
	for name, header := range map[string]string{"OPENAI_ORG_ID": "OpenAI-Organization",
		"OPENAI_PROJECT_ID": "OpenAI-Project"} {
		if v, ok := lookup(name); ok {
			out[header] = v
		}
	}
	lines, _ := lookup("OPENAI_CUSTOM_HEADERS")
	for line := range strings.Lines(lines) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		name, value, ok := strings.Cut(line, ":")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		if !ok || name == "" || strings.ContainsAny(name, " \t") || strings.ContainsFunc(line, unicode.IsControl) {
			// do not show the line, which may contain a secret
			return nil, errors.New("the variable OPENAI_CUSTOM_HEADERS has a line that is not NAME: VALUE")
		}
		out[name] = value
	}
	return out, nil
}
