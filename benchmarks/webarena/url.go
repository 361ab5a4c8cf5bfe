package webarena

import (
	"slices"
	"strings"
)

// url implements url_match: it checks the address where the agent ended.
func (e *Evaluator) url(c *Config, address string) (float64, string, error) {
	note := c.Eval.URLNote
	refs := strings.Split(c.Eval.URL, or)
	ok := false
	switch {
	case e.Dialect == Visual:
		local := func(s string) string {
			return strings.TrimSuffix(strings.ReplaceAll(s, "localhost", "127.0.0.1"), "/")
		}
		got := local(address)
		switch note {
		case "", "EXACT":
			ok = slices.ContainsFunc(refs, func(r string) bool { return local(r) == got })
		case "GOLD in PRED":
			ok = slices.ContainsFunc(refs, func(r string) bool { return strings.Contains(got, local(r)) })
		default:
			return 0, "", wrong("url_note %q is not known", note)
		}
	case note == "" || note == "GOLD in PRED":
		ok = covers(refs, address)
	default:
		return 0, "", wrong("url_note %q is not known", note)
	}
	if !ok {
		return 0, "ended at " + address, nil
	}
	return 1, "", nil
}

// covers reports whether the path of some reference is contained in the page's address, and whether
// for each query parameter of any reference the page has one of the references' values.
func covers(refs []string, address string) bool {
	page := split(strings.TrimRight(address, "/"))
	base := false
	query := map[string][]string{}
	for _, r := range refs {
		ref := split(strings.TrimRight(r, "/"))
		base = base || strings.Contains(page.host+page.path, ref.host+ref.path)
		for k, v := range values(ref.query) {
			query[k] = append(query[k], v...)
		}
	}
	got := values(page.query)
	for k, want := range query {
		if !slices.ContainsFunc(want, func(v string) bool { return slices.Contains(got[k], v) }) {
			return false
		}
	}
	return base
}
