// Package price looks up what models cost. A [Table] maps model names to prices in US dollars per
// million tokens. The price of a model that is not in the table is unknown and is never guessed.
package price

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"maps"
	"regexp"
	"strings"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/model"
	"github.com/evalrun/evalrun/internal/yamldoc"
)

//go:embed prices.yaml
var embedded []byte

// A Table is a price list. The zero value has no prices.
type Table struct {
	AsOf   string // date of the list, YYYY-MM-DD
	prices map[string]model.Price
}

type file struct {
	AsOf   string           `json:"as_of"`
	Models map[string]entry `json:"models"`
}

type entry struct {
	In         *float64 `json:"in" min:"0"`
	Out        *float64 `json:"out" min:"0"`
	Cached     *float64 `json:"cached" min:"0"`
	CacheWrite *float64 `json:"cache_write" min:"0"`
}

// Default returns the list that comes with evalrun. Prices change; AsOf has the date of the list.
func Default() *Table {
	t, err := Parse(embedded)
	if err != nil {
		panic(err) // cannot happen: a test parses the list
	}
	return t
}

// Parse parses a price list:
//
//	as_of: 2025-11-01
//	models:
//	  gpt-4o: {in: 2.50, out: 10, cached: 1.25}
//
// A missing field means an unknown price. Unknown keys, negative prices and values that are not
// numbers are errors.
func Parse(data []byte) (*Table, error) {
	var f file
	n, err := yamldoc.Parse("prices", data, yamldoc.Bounds{})
	if err == nil {
		err = yamldoc.Decode(n, &f)
	}
	if err != nil {
		return nil, err
	}
	t := &Table{AsOf: f.AsOf, prices: map[string]model.Price{}}
	for name, e := range f.Models {
		t.prices[normal(name)] = model.Price(e)
	}
	return t, nil
}

// With returns t with the entries of over added. An entry of over replaces the whole entry of t.
func (t *Table) With(over *Table) *Table {
	out := &Table{AsOf: t.AsOf, prices: maps.Clone(t.prices)}
	if out.prices == nil {
		out.prices = map[string]model.Price{}
	}
	maps.Copy(out.prices, over.prices)
	return out
}

// Digest returns a hash of the prices that does not depend on their order in the file.
func (t *Table) Digest() string {
	raw := make(map[string]entry, len(t.prices))
	for k, v := range t.prices {
		raw[k] = entry(v)
	}
	b, err := json.Marshal(raw) // sorts the keys
	if err != nil {
		panic(err) // cannot happen: the numbers were checked
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// date matches the date of a model's snapshot, which costs the same as the model:
// gpt-4o-2024-08-06, claude-sonnet-4-20250514.
var date = regexp.MustCompile(`[-@](\d{4}-\d{2}-\d{2}|20\d{6})$`)

// Lookup returns a model's price, or nil. It tries the name as it is, then without a date at its
// end, then without everything up to the last slash.
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

// What can be missing when the cost of a reply is computed: the price of a class of tokens, given
// by its key, or the usage.
const (
	In         = "in"
	Out        = "out"
	Cached     = "cached"
	CacheWrite = "cache_write"
	Usage      = "usage" // the service does not report the usage of the reply
)

// Cost returns the cost of a reply at price p, or what is missing to compute it. A reply without
// input tokens has no usage, because there is no empty prompt.
func Cost(p *model.Price, u event.Usage) (usd *float64, missing []string) {
	if p == nil {
		p = &model.Price{}
	}
	if u.In <= 0 {
		return nil, []string{Usage}
	}
	in := u.In - u.Cached - u.CacheWrite
	if in < 0 { // they are not parts of In after all
		in = u.In
	}
	var sum float64
	for _, x := range []struct {
		key   string
		n     int64
		price *float64
	}{{In, in, p.In}, {Out, u.Out, p.Out}, {Cached, u.Cached, p.Cached}, {CacheWrite, u.CacheWrite, p.CacheWrite}} {
		switch {
		case x.n == 0:
		case x.price == nil:
			missing = append(missing, x.key)
		default:
			sum += float64(x.n) * *x.price / 1e6
		}
	}
	if missing != nil {
		return nil, missing
	}
	return &sum, nil
}

// Counted returns the prices that limits and budgets use: p, with each unknown price replaced by
// the highest known one, and for cache writes by twice the input price. It returns nil if no price
// is known. This function is the only place with this rule.
func Counted(p *model.Price) *model.Price {
	if p == nil {
		return nil
	}
	out := *p
	var dearest *float64
	for _, v := range []*float64{p.In, p.Out, p.Cached, p.CacheWrite} {
		if v != nil && (dearest == nil || *v > *dearest) {
			dearest = v
		}
	}
	if dearest == nil {
		return nil
	}
	for _, v := range []**float64{&out.In, &out.Out, &out.Cached} {
		if *v == nil {
			*v = dearest
		}
	}
	if out.CacheWrite == nil {
		twice := 2 * *out.In
		out.CacheWrite = &twice
	}
	return &out
}

// Most returns the maximum cost of a try that used at most u, by the prices that limits and budgets
// use; nil if none is known. All input counts as cache writes if those cost more than input. No
// vendor charges more for a cache hit than for input.
func Most(p *model.Price, u event.Usage) *float64 {
	c := Counted(p)
	if c == nil {
		return nil
	}
	in := max(*c.In, *c.CacheWrite)
	if p.Cached != nil {
		in = max(in, *p.Cached)
	}
	usd := (float64(u.In)*in + float64(u.Out)**c.Out) / 1e6
	return &usd
}

// Dearest returns the highest price that limits and budgets use; nil if none is known.
func Dearest(p *model.Price) *float64 {
	c := Counted(p)
	if c == nil {
		return nil
	}
	most := max(*c.In, *c.Out, *c.Cached, *c.CacheWrite)
	return &most
}
