package image

import (
	"regexp"
	"slices"
	"strings"
)

func (j *checker) arg(rest string) {
	for _, w := range shellWords(rest) {
		name, def, has := strings.Cut(w, "=")
		scope := j.vars
		if len(j.stages) == 0 {
			scope = j.global
		}
		if v, ok := j.args[name]; ok {
			scope[name] = v
		} else if v, ok := j.expand(j.unquote(def), scope); has && ok {
			scope[name] = v
		} else if v, ok := j.global[name]; ok && !has {
			scope[name] = v
		} else {
			delete(scope, name)
		}
	}
}

func (j *checker) env(rest string) {
	words := shellWords(rest)
	if len(words) > 1 && !strings.Contains(words[0], "=") { // ENV NAME value
		_, v, _ := cutSpace(rest)
		words = []string{words[0] + "=" + v}
	}
	for _, w := range words {
		name, v, _ := strings.Cut(w, "=")
		if v, ok := j.expand(j.unquote(v), j.vars); ok {
			j.vars[name] = v
		} else {
			delete(j.vars, name)
		}
	}
}

func unquote(s string) string { return strings.NewReplacer(`"`, "", "'", "").Replace(s) }

// unquote removes escapes too, more of them than a builder does, since it is used to check what a
// text may become.
func (j *checker) unquote(s string) string {
	return strings.ReplaceAll(unquote(s), string(j.out.d.escape), "")
}

var variable = regexp.MustCompile(`\$(?:([A-Za-z_][A-Za-z0-9_]*)|\{([A-Za-z_][A-Za-z0-9_]*)(?::([-+])([^{}$]*))?\})`)

// platforms are the variables that a builder sets by itself.
var platforms = []string{"BUILDPLATFORM", "TARGETPLATFORM", "BUILDARCH", "TARGETARCH", "BUILDOS", "TARGETOS",
	"BUILDVARIANT", "TARGETVARIANT"}

// expand expands variables. It returns false if not all are known. A stage has the variables of its
// base image too, so a variable that its Dockerfile does not set is unknown, not empty.
func (j *checker) expand(s string, vars map[string]string) (string, bool) {
	all, complete := true, len(j.stages) == 0
	out := variable.ReplaceAllStringFunc(s, func(m string) string {
		p := variable.FindStringSubmatch(m)
		name := p[1] + p[2]
		v, ok := vars[name]
		switch {
		case slices.Contains(platforms, name) && !ok:
			switch {
			case strings.HasSuffix(name, "PLATFORM"):
				return j.about.OS + "/" + j.about.Arch
			case strings.HasSuffix(name, "ARCH"):
				return j.about.Arch
			case strings.HasSuffix(name, "OS"):
				return j.about.OS
			}
			return ""
		case p[3] == "-" && v == "":
			all = all && (ok || complete)
			return p[4]
		case p[3] == "+":
			all = all && (ok || complete)
			if v != "" {
				return p[4]
			}
			return ""
		}
		all = all && ok
		return v
	})
	return out, all && !strings.Contains(out, "$")
}
