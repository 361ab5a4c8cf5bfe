package price_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/model"
	"github.com/evalrun/evalrun/agent/model/price"
)

func TestLookup(t *testing.T) {
	d := price.Default()
	if d.Lookup("gpt-4o") == nil || d.AsOf == "" {
		t.Fatalf("no prices, or no date: %q", d.AsOf)
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
	for _, c := range []struct {
		p       *model.Price
		u       event.Usage
		want    float64
		missing string
	}{
		{p, event.Usage{In: 1_000_000, Out: 100_000}, 3, ""},
		{p, event.Usage{In: 1_000_000, Out: 100_000, Cached: 400_000}, 1.2 + 1 + 0.4, ""},
		{p, event.Usage{In: 100_000, Cached: 400_000}, 0.2 + 0.4, ""}, // cached cannot be a part of in
		{p, event.Usage{In: 10, Out: 10, CacheWrite: 1}, 0, "cache_write"},
		{p, event.Usage{}, 0, "usage"},
		{p, event.Usage{Out: 10}, 0, "usage"},
		{nil, event.Usage{In: 10, Out: 10}, 0, "in,out"},
		{&model.Price{In: v(0), Out: v(0)}, event.Usage{In: 10, Out: 10}, 0, ""}, // free is a price
	} {
		got, missing := price.Cost(c.p, c.u)
		if strings.Join(missing, ",") != c.missing || (got == nil) != (c.missing != "") || got != nil &&
			math.Abs(*got-c.want) > 1e-12 {
			t.Errorf("%+v: %v, missing %q; want %v, %q", c.u, got, missing, c.want, c.missing)
		}
	}
}

// What limits count with is known where any price is, and never below a price that is known for the
// same tokens.
func TestCounted(t *testing.T) {
	v := func(f float64) *float64 { return &f }
	for _, c := range []struct {
		p    model.Price
		want [4]float64
	}{
		{model.Price{In: v(2), Out: v(10)}, [4]float64{2, 10, 10, 4}},
		{model.Price{In: v(2), Out: v(10), Cached: v(1), CacheWrite: v(3)}, [4]float64{2, 10, 1, 3}},
		{model.Price{In: v(30), Out: v(10)}, [4]float64{30, 10, 30, 60}},
		{model.Price{Out: v(10)}, [4]float64{10, 10, 10, 20}},
		{model.Price{In: v(0), Out: v(0)}, [4]float64{}},
	} {
		got := price.Counted(&c.p)
		if is := [4]float64{*got.In, *got.Out, *got.Cached, *got.CacheWrite}; is != c.want {
			t.Errorf("%v, want %v", is, c.want)
		}
		if d := price.Dearest(&c.p); *d != slices.Max(c.want[:]) {
			t.Errorf("dearest %v of %v", *d, c.want)
		}
	}
	if price.Counted(nil) != nil || price.Counted(&model.Price{}) != nil || price.Dearest(nil) != nil {
		t.Error("a price out of nothing")
	}
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
	for _, bad := range []string{"models: {a: {in: -1}}", "models: {a: {in: .nan}}", "models: {a: {input: 1}}",
		"modells: {}", "models: 3"} {
		if _, err := price.Parse([]byte(bad)); err == nil || !strings.HasPrefix(err.Error(), "prices:1:") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}
