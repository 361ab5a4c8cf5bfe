package sandboxed

import (
	"path"
	"strings"
)

// Leads is where a link at the absolute path at leads to, by its text alone. ok is false where that
// cannot be told: no ".." may follow a name in it, for the name may be that of another link.
func Leads(at, link string) (to string, ok bool) {
	to = path.Dir(at)
	if path.IsAbs(link) {
		to = "/"
	}
	named := false
	for p := range strings.SplitSeq(link, "/") {
		switch p {
		case "", ".":
		case "..":
			if named {
				return "", false
			}
			to = path.Dir(to)
		default:
			to, named = path.Join(to, p), true
		}
	}
	return to, true
}

// Within reports whether the absolute path p is dir or lies below it.
func Within(p, dir string) bool {
	return p == dir || strings.HasPrefix(p, strings.TrimSuffix(dir, "/")+"/")
}
