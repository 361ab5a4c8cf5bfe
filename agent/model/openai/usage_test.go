package openai

import (
	"encoding/json"
	"testing"

	sdk "github.com/openai/openai-go/v3"

	"github.com/evalrun/evalrun/agent/event"
)

// Some services count reasoning beside the output, though it is billed as output: what limits and prices see holds it in any case.
func TestReasoningIsOutput(t *testing.T) {
	for raw, want := range map[string]event.Usage{
		`{"prompt_tokens":30,"completion_tokens":100,"total_tokens":130,"completion_tokens_details":{"reasoning_tokens":90}}`: {In: 30, Out: 100, Reasoning: 90},
		`{"prompt_tokens":30,"completion_tokens":10,"total_tokens":130,"completion_tokens_details":{"reasoning_tokens":90}}`:  {In: 30, Out: 100, Reasoning: 90},
		`{"prompt_tokens":30,"completion_tokens":10,"total_tokens":40}`:                                                       {In: 30, Out: 10},
	} {
		var u sdk.CompletionUsage
		if err := json.Unmarshal([]byte(raw), &u); err != nil {
			t.Fatal(err)
		}
		if got := usage(u); got != want {
			t.Errorf("%s: %+v, want %+v", raw, got, want)
		}
	}
}
