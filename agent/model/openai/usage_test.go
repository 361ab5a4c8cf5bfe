package openai

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/agent/event"
)

// Some services count reasoning beside the output, though it is billed as output: what limits and
// prices see holds it in any case.
func TestReasoningIsOutput(t *testing.T) {
	for raw, want := range map[string]event.Usage{
		`{"prompt_tokens":30,"completion_tokens":100,"total_tokens":130,"completion_tokens_details":{"reasoning_tokens":90}}`: {In: 30, Out: 100, Reasoning: 90},
		`{"prompt_tokens":30,"completion_tokens":10,"total_tokens":130,"completion_tokens_details":{"reasoning_tokens":90}}`:  {In: 30, Out: 100, Reasoning: 90},
		`{"prompt_tokens":30,"completion_tokens":10,"total_tokens":40}`:                                                       {In: 30, Out: 10},
	} {
		var u spent
		if err := json.Unmarshal([]byte(raw), &u); err != nil {
			t.Fatal(err)
		}
		if got := usage(u); got != want {
			t.Errorf("%s: %+v, want %+v", raw, got, want)
		}
	}
}

// Services name what came from a cache and went into it in several ways. It is a part of the input,
// or is made one.
func TestCacheFields(t *testing.T) {
	for raw, want := range map[string]event.Usage{
		`{"prompt_tokens":30,"completion_tokens":1,"prompt_cache_hit_tokens":20,"prompt_cache_miss_tokens":10}`:                                 {In: 30, Out: 1, Cached: 20},
		`{"prompt_tokens":30,"completion_tokens":1,"cached_tokens":20}`:                                                                         {In: 30, Out: 1, Cached: 20},
		`{"prompt_tokens":30,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":20},"cached_tokens":20}`:                            {In: 30, Out: 1, Cached: 20},
		`{"prompt_tokens":30,"completion_tokens":1,"cache_read_input_tokens":20,"cache_creation_input_tokens":5}`:                               {In: 30, Out: 1, Cached: 20, CacheWrite: 5},
		`{"prompt_tokens":30,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":0,"cache_creation_input_tokens":25}}`:               {In: 30, Out: 1, CacheWrite: 25},
		`{"prompt_tokens":31,"completion_tokens":467,"total_tokens":498,"cache_creation_input_tokens":1253,"cache_read_input_tokens":0}`:        {In: 1284, Out: 467, CacheWrite: 1253},
		`{"prompt_tokens":4,"completion_tokens":1,"total_tokens":505,"cache_creation_input_tokens":200,"cache_read_input_tokens":300}`:          {In: 504, Out: 1, Cached: 300, CacheWrite: 200},
		`{"prompt_tokens":30,"completion_tokens":1,"cache_read_input_tokens":-20,"cache_creation_input_tokens":"x","cached_tokens":null}`:       {In: 30, Out: 1},
		`{"prompt_tokens":30,"completion_tokens":-1,"cache_read_input_tokens":9000000000000000000,"cache_creation_input_tokens":9000000000000}`: {In: 1 << 40, Cached: 1 << 40, CacheWrite: 1 << 40},
	} {
		var u spent
		if err := json.Unmarshal([]byte(raw), &u); err != nil {
			t.Fatal(err)
		}
		if got := usage(u); got != want {
			t.Errorf("%s: %+v, want %+v", raw, got, want)
		}
	}
}

// Counts that nobody believes neither overflow nor turn around.
func TestHugeUsage(t *testing.T) {
	const most = 1 << 40
	for raw, want := range map[string]event.Usage{
		`{"prompt_tokens":100,"completion_tokens":10,"total_tokens":-9223372036854775808}`: {In: 100, Out: 10},
		`{"prompt_tokens":100,"completion_tokens":10,"total_tokens":-1e30}`:                {In: 100, Out: 10},
		`{"prompt_tokens":100,"completion_tokens":10,"total_tokens":9223372036854775807}`:  {In: 100, Out: most - 100},
		`{"prompt_tokens":100,"completion_tokens":10,"completion_tokens_details":{"reasoning_tokens":9223372036854775807}}`: {
			In: 100, Out: most, Reasoning: most},
		`{"prompt_tokens":100,"completion_tokens":-9223372036854775808,"completion_tokens_details":{"reasoning_tokens":-1}}`: {In: 100},
		`{"prompt_tokens":-9223372036854775808,"completion_tokens":10,"total_tokens":9223372036854775807}`:                   {Out: most},
		`{"prompt_tokens":9223372036854775807,"completion_tokens":9223372036854775807,"total_tokens":9223372036854775807}`:   {In: most, Out: most},
	} {
		var u spent
		if err := json.Unmarshal([]byte(raw), &u); err != nil {
			t.Fatal(err)
		}
		if got := usage(u); got != want {
			t.Errorf("%s: %+v, want %+v", raw, got, want)
		}
	}
}

// A cost is a number or a string with a number. With any other value no usage is reported, so that
// a lower price is not used instead.
func TestCostField(t *testing.T) {
	is := func(usd float64) *float64 { return &usd }
	for raw, want := range map[string]*event.Usage{
		`0.25`:             {In: 100, Out: 10, Cost: is(0.25)},
		`"5.0"`:            {In: 100, Out: 10, Cost: is(5)},
		`" 2.5e-3 "`:       {In: 100, Out: 10, Cost: is(0.0025)},
		`0`:                {In: 100, Out: 10, Cost: is(0)},
		`null`:             {In: 100, Out: 10},
		`1e9`:              {},
		`"1e9"`:            {},
		`1e400`:            {},
		`-5`:               {},
		`""`:               {},
		`"null"`:           {},
		`"NaN"`:            {},
		`"Inf"`:            {},
		`"$5"`:             {},
		`true`:             {},
		`{"total_cost":3}`: {},
		`[5]`:              {},
	} {
		var u spent
		if err := json.Unmarshal([]byte(`{"prompt_tokens":100,"completion_tokens":10,"cost":`+raw+`}`),
			&u); err != nil {
			t.Fatal(err)
		}
		if got := usage(u); !cmp.Equal(got, *want) {
			t.Errorf("cost %s: %+v, want %+v", raw, got, *want)
		}
	}
}
