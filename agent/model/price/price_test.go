package price_test

import (
	"strings"
	"testing"

	"github.com/evalrun/evalrun/agent/model"
	"github.com/evalrun/evalrun/agent/model/price"
)

func TestLookup(t *testing.T) {
	d := price.Default()
	if d.Len() == 0 || d.AsOf == "" {
		t.Fatalf("%d prices as of %q", d.Len(), d.AsOf)
	}
	for name, in := range map[string]float64{
		"gpt-4o": 2.5, "GPT-4o": 2.5, "gpt-4o-2024-08-06": 2.5, "gpt-4o-2024-05-13": 5, "openai/gpt-4o-mini": 0.15,
		"claude-opus-4-20250514": 15, "router/anthropic/claude-3-haiku": 0.25,
	} {
		if p := d.Lookup(name); p == nil || p.In == nil || *p.In != in {
			t.Errorf("%s: %+v, want %v in", name, p, in)
		}
	}
	for _, name := range []string{"", "gpt-4o-audio-preview", "gpt-5-codex", "my-own", "gpt-4o/extra", "2025-01-01"} {
		if p := d.Lookup(name); p != nil {
			t.Errorf("%q has a price: %+v", name, p)
		}
	}
}

func TestCost(t *testing.T) {
	v := func(f float64) *float64 { return &f }
	p := &model.Price{In: v(2), Out: v(10), Cached: v(1)}
	check := func(got *float64, want float64) {
		t.Helper()
		if want < 0 && got != nil {
			t.Errorf("%v, want unknown", *got)
		}
		if want >= 0 && (got == nil || *got < want-1e-12 || *got > want+1e-12) {
			t.Errorf("%v, want %v", got, want)
		}
	}
	check(price.Cost(p, 1_000_000, 100_000, 0, 0), 3)
	check(price.Cost(p, 1_000_000, 100_000, 400_000, 0), 1.2+1+0.4)
	check(price.Cost(p, 10, 10, 0, 1), -1) // writing to the cache has no price
	check(price.Cost(p, 0, 0, 0, 0), -1)   // the service did not say
	check(price.Cost(nil, 10, 10, 0, 0), -1)
	check(price.Cost(&model.Price{In: v(0), Out: v(0)}, 10, 10, 0, 0), 0) // free is a price
}

func TestOverride(t *testing.T) {
	over, err := price.Parse([]byte("models:\n  gpt-4o: {in: 1, out: 2}\n  mine: {in: 0, out: 0}\n"))
	if err != nil {
		t.Fatal(err)
	}
	d := price.Default()
	both := d.With(over)
	if p := both.Lookup("gpt-4o"); *p.In != 1 || p.Cached != nil {
		t.Errorf("gpt-4o: %+v", p)
	}
	if both.Lookup("mine") == nil || d.Lookup("mine") != nil {
		t.Error("With is wrong about mine")
	}
	if d.Digest() == both.Digest() || d.Digest() != price.Default().Digest() {
		t.Error("digests")
	}
	again, err := price.Parse([]byte("models: {mine: {out: 0, in: 0}, GPT-4o: {out: 2, in: 1}}"))
	if err != nil || again.Digest() != over.Digest() {
		t.Errorf("the order in the file changes the digest (%v)", err)
	}
	for _, bad := range []string{"models: {a: {in: -1}}", "models: {a: {in: .nan}}", "models: {a: {input: 1}}", "modells: {}", "models: 3"} {
		if _, err := price.Parse([]byte(bad)); err == nil || !strings.HasPrefix(err.Error(), "prices: ") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}
