package format

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// readArtifacts reads the key artifacts: texts and tables.
func readArtifacts(t *table) (out []Artifact) {
	v, ok := t.get("artifacts")
	if !ok {
		return nil
	}
	list, ok := v.([]any)
	if !ok {
		t.bad("artifacts", "want a list")
		return nil
	}
	for i, v := range list {
		key := fmt.Sprintf("artifacts[%d]", i)
		var a Artifact
		switch x := v.(type) {
		case string:
			a.Source = x
		case map[string]any:
			s := t.sub(key, x)
			a = Artifact{Source: s.text("source"), Destination: s.text("destination"), Service: s.text("service")}
			a.Exclude, _ = s.list("exclude")
			s.end()
		default:
			t.bad(key, "want a path or a table with a source")
			continue
		}
		if a.Service == MainService {
			a.Service = ""
		}
		if why := a.check(); why != "" {
			t.bad(key, "%s", why)
			continue
		}
		out = append(out, a)
	}
	return out
}

// check says what is wrong with an artifact's paths; it cleans them.
func (a *Artifact) check() string {
	switch {
	case a.Source == "" || strings.ContainsRune(a.Source, 0):
		return "an artifact needs a source"
	case hasParent(a.Source):
		return fmt.Sprintf("source %q has a .. in it", a.Source)
	case a.Service != "" && !path.IsAbs(a.Source):
		return fmt.Sprintf("source %q of service %s; want an absolute path", a.Source, a.Service)
	}
	a.Source = path.Clean(a.Source)
	if a.Source == "/" || a.Source == "." {
		return fmt.Sprintf("source %q is a whole machine", a.Source)
	}
	d := a.Destination
	if d == "" {
		return ""
	}
	if path.IsAbs(d) || hasParent(d) || strings.ContainsAny(d, "\\\x00") || path.Clean(d) == "." ||
		path.Clean(d) == "manifest.json" {
		return fmt.Sprintf("destination %q; want a relative path with forward slashes, without .., and not "+
			"manifest.json", d)
	}
	a.Destination = path.Clean(d)
	return ""
}

func hasParent(p string) bool { return slices.Contains(strings.Split(p, "/"), "..") }

// To is where an artifact is kept in the artifacts' folder.
func (a Artifact) To() string {
	if a.Destination != "" {
		return a.Destination
	}
	return strings.TrimPrefix(a.Source, "/")
}

// overlaps notes artifacts of one machine of which one holds the other, or that would be kept in
// one place.
func overlaps(t *table, list []Artifact) {
	below := func(a, b string) bool { return a == b || strings.HasPrefix(a, b+"/") }
	for i, a := range list {
		for _, b := range list[:i] {
			if a.Service == b.Service && (below(a.Source, b.Source) || below(b.Source, a.Source)) {
				t.bad("artifacts", "%q and %q overlap", b.Source, a.Source)
			} else if a.Service == b.Service && (below(a.To(), b.To()) || below(b.To(), a.To())) {
				t.bad("artifacts", "%q and %q would be kept in the same place", b.Source, a.Source)
			}
		}
	}
}
