// Package price knows what models cost. A [Table] maps names of models to prices in US dollars for a million tokens; what is not in it is not
// known, and stays so: no price is ever guessed.
package price

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"regexp"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/evalrun/evalrun/agent/model"
)

//go:embed prices.yaml
var embedded []byte

// A Table of prices. The zero value knows none.
type Table struct {
	AsOf   string // the day of the list, YYYY-MM-DD
	prices map[string]model.Price
}

type file struct {
	AsOf   string           `yaml:"as_of"`
	Models map[string]entry `yaml:"models"`
}

type entry struct {
	In         *float64 `yaml:"in" json:"in"`
	Out        *float64 `yaml:"out" json:"out"`
	Cached     *float64 `yaml:"cached" json:"cached"`
	CacheWrite *float64 `yaml:"cache_write" json:"cache_write"`
}

// Default is the list that comes with evalrun. Prices change: it says of what day it is.
func Default() *Table {
	t, err := Parse(embedded)
	if err != nil {
		panic(err) // a test reads it
	}
	return t
}

// Parse reads a list:
//
//	as_of: 2025-11-01
//	models:
//	  gpt-4o: {in: 2.50, out: 10, cached: 1.25}
//
// A field that is left out is not known. Unknown keys and prices that are negative or no numbers are errors.
func Parse(data []byte) (*Table, error) {
	var f file
	if err := yaml.UnmarshalWithOptions(data, &f, yaml.Strict()); err != nil {
		return nil, fmt.Errorf("prices: %w", err)
	}
	t := &Table{AsOf: f.AsOf, prices: map[string]model.Price{}}
	for name, e := range f.Models {
		for _, v := range []*float64{e.In, e.Out, e.Cached, e.CacheWrite} {
			if v != nil && (*v < 0 || math.IsNaN(*v) || math.IsInf(*v, 0)) {
				return nil, fmt.Errorf("prices: %s: %v is no price", name, *v)
			}
		}
		t.prices[normal(name)] = model.Price(e)
	}
	return t, nil
}

// With returns t with the entries of over in front: an entry of over replaces the whole entry of t.
func (t *Table) With(over *Table) *Table {
	out := &Table{AsOf: t.AsOf, prices: maps.Clone(t.prices)}
	if out.prices == nil {
		out.prices = map[string]model.Price{}
	}
	maps.Copy(out.prices, over.prices)
	return out
}

// Digest identifies the prices, whatever their order in the file.
func (t *Table) Digest() string {
	raw := make(map[string]entry, len(t.prices))
	for k, v := range t.prices {
		raw[k] = entry(v)
	}
	b, err := json.Marshal(raw) // sorts the keys
	if err != nil {
		panic(err) // numbers were checked
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// Len is the number of models.
func (t *Table) Len() int { return len(t.prices) }

// A dated snapshot costs what its model costs: gpt-4o-2024-08-06, claude-sonnet-4-20250514.
var date = regexp.MustCompile(`[-@](\d{4}-\d{2}-\d{2}|20\d{6})$`)

// Lookup finds a model's price, or nil. The name is looked for as it is, without a date at its end, and without what stands before the
// last slash, in this order.
func (t *Table) Lookup(name string) *model.Price {
	name = normal(name)
	for {
		for _, n := range []string{name, date.ReplaceAllString(name, "")} {
			if p, ok := t.prices[n]; ok {
				return &p
			}
		}
		_, rest, ok := strings.Cut(name, "/")
		if !ok {
			return nil
		}
		name = rest
	}
}

func normal(name string) string { return strings.ToLower(strings.TrimSpace(name)) }

// Cost of a reply, or nil where a price that it takes is not known, or the usage is not.
func Cost(p *model.Price, in, out, cached, cacheWrite int64) *float64 {
	if p == nil || in <= 0 && out <= 0 {
		return nil
	}
	var sum float64
	for _, x := range []struct {
		n     int64
		price *float64
	}{{max(in-cached-cacheWrite, 0), p.In}, {out, p.Out}, {cached, p.Cached}, {cacheWrite, p.CacheWrite}} {
		if x.n == 0 {
			continue
		}
		if x.price == nil {
			return nil
		}
		sum += float64(x.n) * *x.price / 1e6
	}
	return &sum
}
