package tasks

import (
	"net/url"
	"path"
	"strconv"
	"strings"

	"github.com/evalrun/evalrun/browsergym/cdp"
)

// A seeded start page generates its problem from a seed in its address. An agent could reopen the
// page with another seed, or without one, until the problem is easy; such a page does not count as
// a page of the task.
type seeded struct {
	path   string
	fields []string // query parameters that hold the seed
	seed   string
}

// otherSeed explains why such a page does not count.
const otherSeed = "the page was opened with another seed than the task's, which makes another problem"

// seeds returns the start pages that have a seed in their address.
func seeds(b *Browser, base string, seed uint32) (out []seeded) {
	const mark = "seed-of-the-episode"
	for _, s := range b.starts() {
		if !remote(s) {
			s = base + strings.TrimPrefix(s, "/")
		}
		u, err := url.Parse(strings.ReplaceAll(s, "{seed}", mark))
		if err != nil {
			continue
		}
		x := seeded{path: spot(u), seed: strconv.FormatUint(uint64(seed), 10)}
		for k, v := range u.Query() {
			if len(v) == 1 && v[0] == mark {
				x.fields = append(x.fields, k)
			}
		}
		if len(x.fields) > 0 {
			out = append(out, x)
		}
	}
	return out
}

// spot returns the location of a document, without its query.
func spot(u *url.URL) string {
	p := path.Clean("/" + strings.TrimSuffix(u.Path, "index.html"))
	return u.Host + p
}

// another reports whether an address is that of a start page but with a seed that matches none of
// the start pages there.
func another(all []seeded, address string) bool {
	u, err := url.Parse(address)
	if err != nil {
		return false
	}
	query := u.Query()
	wrong := false
	for _, s := range all {
		if s.path != spot(u) {
			continue
		}
		if s.is(query) {
			return false
		}
		wrong = true
	}
	return wrong
}

func (s seeded) is(query url.Values) bool {
	for _, k := range s.fields {
		if v := query[k]; len(v) != 1 || v[0] != s.seed {
			return false
		}
	}
	return true
}

// other reports whether a page was loaded from a start page's address with another seed.
func (p *graded) other(page *cdp.Page) bool { return another(p.seeds, page.Document()) }
