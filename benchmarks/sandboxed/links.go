package sandboxed

import (
	"path"
	"strings"
)

// LinkTarget resolves a link at the absolute path at by its text alone. ok is false if ".." follows
// a name in it, because the name may be that of another link.
func LinkTarget(at, link string) (to string, ok bool) {
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
