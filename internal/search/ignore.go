package search

import (
	"bytes"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
	"golang.org/x/sys/unix"
)

// A glob is the pattern of a path below a folder.
type glob struct {
	root    string // with a slash at the end
	pattern string
	name    bool // the pattern is that of the last element
	right   bool // the pattern may match the last elements, as with Python's PurePath.match
}

func newGlob(root, pattern string, right bool) (*glob, error) {
	root = strings.TrimSuffix(path.Clean(root), "/") + "/"
	p := strings.TrimPrefix(pattern, "./")
	if rest, ok := strings.CutPrefix(p, root); ok && root != "/" {
		p = "/" + rest // the whole path
	}
	anchored := strings.HasPrefix(p, "/")
	p = strings.TrimPrefix(p, "/")
	switch {
	case p == "":
		return nil, fmt.Errorf("the glob %q is empty; ** matches all files", pattern)
	case slices.Contains(strings.Split(p, "/"), ".."):
		return nil, fmt.Errorf("the glob %q leads out of its folder; name another folder to search", pattern)
	case !doublestar.ValidatePattern(p):
		return nil, fmt.Errorf("the glob %q is not valid; its form is as in **/*.{go,py}, [a-z]?.txt", pattern)
	}
	if strings.HasSuffix(p, "/") {
		p += "**"
	}
	p = inside(p)
	return &glob{root: root, pattern: p, name: !anchored && !strings.Contains(p, "/"), right: right && !anchored}, nil
}

// levels returns how deep a path that matches can be; 0: there is no limit.
func (g *glob) levels() int {
	if g.name || g.right || strings.Contains(g.pattern, "**") {
		return 0
	}
	return 1 + strings.Count(g.pattern, "/")
}

func (g *glob) match(name, last string) bool {
	if g.name {
		return doublestar.MatchUnvalidated(g.pattern, last)
	}
	rel := strings.TrimPrefix(name, g.root)
	return doublestar.MatchUnvalidated(g.pattern, rel) || g.right && doublestar.MatchUnvalidated("**/"+g.pattern, rel)
}

// The files that say what is left out, the one that counts first at the beginning.
var ignoreFiles = [...]string{".rgignore", ".ignore", ".gitignore", ".git/info/exclude"}

const firstOfGit = 2 // the rest of ignoreFiles counts in repositories only

// Limits of such a file. What is beyond them is not used.
const (
	maxIgnoreFile = 1 << 20
	maxRules      = 10_000
)

// ignores has the rules of a folder and of those that it is in.
type ignores struct {
	above *ignores
	dir   string // with a slash at the end
	rules [len(ignoreFiles)][]rule
	repo  bool // the folder is the root of a repository
	git   bool // it, or a folder that it is in, is one
}

// in returns the rules in a folder of g, which is nil outside of all.
func (g *ignores) in(dir string) *ignores {
	above := g
	g = &ignores{above: above, dir: strings.TrimSuffix(dir, "/") + "/", git: above != nil && above.git}
	g.repo = unix.Access(g.dir+".git", unix.F_OK) == nil
	g.git = g.git || g.repo
	rules := g.repo
	for i, name := range ignoreFiles {
		if i >= firstOfGit && !g.git || i == len(ignoreFiles)-1 && !g.repo {
			break
		}
		g.rules[i] = readRules(g.dir + name)
		rules = rules || len(g.rules[i]) > 0
	}
	if !rules && above != nil {
		return above // which is faster
	}
	return g
}

// match reports whether a file or folder is left out: by a rule, or because it is hidden and no rule
// takes it in.
func (g *ignores) match(name, last string, dir bool) bool {
	for i := range ignoreFiles {
		for at := g; at != nil; at = at.above {
			if i >= firstOfGit && !at.git {
				break
			}
			rules := at.rules[i]
			for k := len(rules) - 1; k >= 0; k-- {
				if rules[k].match(name[len(at.dir):], last, dir) {
					return !rules[k].in
				}
			}
			if i >= firstOfGit && at.repo {
				break
			}
		}
	}
	return strings.HasPrefix(last, ".")
}

// A rule is a line of an ignore file.
type rule struct {
	pattern string
	in      bool // it takes in what an earlier rule leaves out
	dir     bool // it is for folders
	name    bool // the pattern is that of the last element
	plain   bool // the pattern has no special characters
	end     bool // the pattern is a star and an end of the name, which is in pattern
}

func (r *rule) match(rel, last string, dir bool) bool {
	if r.dir && !dir {
		return false
	}
	if r.name {
		rel = last
	}
	switch {
	case r.plain:
		return r.pattern == rel
	case r.end:
		return strings.HasSuffix(rel, r.pattern)
	}
	return doublestar.MatchUnvalidated(r.pattern, rel)
}

// readRules returns the rules of a file, or nil if there is no regular file that can be read.
func readRules(name string) (rules []rule) {
	fd, err := openFile(name)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	b := make([]byte, 4096)
	n := 0
	for n < maxIgnoreFile {
		k, err := readFile(fd, b[n:])
		if n += k; err != nil || k == 0 {
			break
		}
		if n == len(b) {
			b = append(b, make([]byte, len(b))...)
		}
	}
	for line := range bytes.Lines(bytes.TrimPrefix(b[:n], []byte("\ufeff"))) {
		if r, ok := parseRule(string(line)); ok {
			rules = append(rules, r)
		}
		if len(rules) == maxRules {
			break
		}
	}
	return rules
}

// parseRule parses a line as described in gitignore(5). As with ripgrep, {a,b} is one of several texts.
func parseRule(line string) (r rule, ok bool) {
	line = strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r")
	for strings.HasSuffix(line, " ") && !strings.HasSuffix(line, `\ `) {
		line = line[:len(line)-1]
	}
	if line == "" || line[0] == '#' {
		return r, false
	}
	line, r.in = strings.CutPrefix(line, "!")
	line, r.dir = strings.CutSuffix(line, "/")
	line, anchored := strings.CutPrefix(line, "/")
	if line == "" {
		return r, false
	}
	r.name = !anchored && !strings.Contains(line, "/")
	r.pattern = inside(line)
	r.plain = !strings.ContainsAny(line, special)
	if rest, star := strings.CutPrefix(line, "*"); star && r.name && !strings.ContainsAny(rest, special) {
		r.end, r.pattern = true, rest
	}
	return r, r.plain || r.end || doublestar.ValidatePattern(r.pattern)
}

// inside changes a pattern that ends with /** so that it matches what is in the folder, but not the
// folder.
func inside(pattern string) string {
	if strings.HasSuffix(pattern, "/**") {
		return pattern + "/*"
	}
	return pattern
}

const special = `*?[]{}\`
