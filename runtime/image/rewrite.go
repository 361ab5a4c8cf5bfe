package image

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode/utf8"
)

// compose writes a rewritten instruction on one line.
func (s *step) compose(escape byte) string {
	words := []string{s.name}
	for _, f := range s.flags {
		var b strings.Builder
		for _, c := range []byte(f.String()) {
			if strings.IndexByte(" \t\"'", c) >= 0 || c == escape {
				b.WriteByte(escape)
			}
			b.WriteByte(c)
		}
		words = append(words, b.String())
	}
	return strings.Join(append(words, s.rest), " ")
}

// paths returns the sources and the destination of COPY and ADD.
func (s *step) paths() (sources []string, to string) {
	var words []string
	if json.Unmarshal([]byte(s.rest), &words) != nil {
		words = strings.Fields(s.rest)
	}
	if len(words) == 0 {
		return nil, ""
	}
	return words[:len(words)-1], words[len(words)-1]
}

// setPaths sets what paths returns, in the form that the instruction has.
func (s *step) setPaths(sources []string, to string) {
	words := append(append([]string(nil), sources...), to)
	if strings.HasPrefix(s.rest, "[") && json.Unmarshal([]byte(s.rest), new([]string)) == nil {
		b, _ := json.Marshal(words)
		s.rest = string(b)
		return
	}
	s.rest = strings.Join(words, " ")
}

// runHere rewrites RUN with here-documents for a frontend without them. The script becomes an
// argument of the shell or, if it names its own interpreter, a file that is mounted for this step.
func (j *checker) runHere(s *step) error {
	script := s.rest
	for _, h := range s.here {
		script += "\n" + h.text + h.name
	}
	if len(s.here) == 1 && strings.TrimSpace(s.rest) == s.here[0].word {
		script = s.here[0].text
	}
	if strings.HasPrefix(script, "#!") {
		if j.classic {
			return wrong(s.line, "a here-document that names its interpreter needs BuildKit, and this is the classic "+
				"builder; write RUN INTERPRETER <<%s", s.here[0].name)
		}
		name := j.hide(s.here[0].name, script, 0o755)
		in := "/dev/pipes/" + path.Base(name)
		s.flags = append(s.flags, flag{"mount", "type=bind,source=" + name + ",target=" + in})
		s.rest = in
		s.text = s.compose(j.out.d.escape)
		return nil
	}
	if !utf8.ValidString(script) {
		return wrong(s.line, "a here-document that is not UTF-8 needs an engine of at least 23.0")
	}
	shell := j.stages[len(j.stages)-1].shell
	if shell == nil {
		shell = []string{"/bin/sh", "-c"}
	}
	if len(script) > 128<<10-1 {
		return wrong(s.line, "a here-document of more than 128 KiB needs an engine of at least 23.0; put it in a "+
			"file of the context and COPY it")
	}
	s.rest = jsonLines(append(append([]string(nil), shell...), script), j.out.d.escape)
	s.text = s.compose(j.out.d.escape)
	return nil
}

// copyHere makes files of the here-documents of COPY and ADD.
func (j *checker) copyHere(s *step) error {
	sources, to := s.paths()
	for _, h := range s.here {
		if !h.quoted && strings.Contains(h.text, "$") {
			return wrong(s.line, "variables in a here-document of %s need an engine of at least 23.0; quote its name "+
				"(<<'%s') if the text is meant as it is", s.name, h.name)
		}
		for i, src := range sources {
			if src == h.word {
				sources[i] = j.hide(h.name, h.text, 0o644)
				break
			}
		}
	}
	s.setPaths(sources, to)
	s.text = s.compose(j.out.d.escape)
	return nil
}

// hide adds a file to the build and returns its name. The last element is the file's name for COPY
// to a directory.
func (j *checker) hide(name, text string, mode int64) string {
	j.docs++
	if name = path.Base(path.Clean("/" + name)); name == "/" {
		name = "EOF"
	}
	full := fmt.Sprintf("%s/%d/%s", hiddenDir, j.docs, name)
	j.out.files = append(j.out.files, hidden{full, text, mode})
	return full
}

// hiddenDir is the directory of our own files in the context. contextDir is the directory of the
// context if it must not contain them.
const (
	hiddenDir  = ".evalrun"
	contextDir = "context"
)

// lineMax keeps lines shorter than what old scanners can read (64 KiB).
const lineMax = 8 << 10

// jsonLines returns a JSON array, with long ones broken by the escape character. Lines are broken
// between two letters, digits or such, because builders trim blanks, take '#' for a comment and
// check the character before the escape.
func jsonLines(words []string, escape byte) string {
	b, _ := json.Marshal(words)
	var out strings.Builder
	n := 0
	plain := func(c byte) bool {
		return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
	}
	for i, c := range b {
		out.WriteByte(c)
		if n++; n >= lineMax && i+1 < len(b) && plain(c) && plain(b[i+1]) {
			out.WriteByte(escape)
			out.WriteByte('\n')
			n = 0
		}
	}
	return out.String()
}

// catchesRoot reports whether a step copies the whole context, with our own files.
func (d *dockerfile) catchesRoot() bool {
	for i := range d.steps {
		s := &d.steps[i]
		if s.name == "COPY" || s.name == "ADD" {
			if s.flag("from") != "" {
				continue
			}
			sources, _ := s.paths()
			for _, src := range sources {
				src = unquote(src)
				if path.Clean("/"+src) == "/" ||
					strings.ContainsAny(strings.SplitN(strings.TrimLeft(src, "./"), "/", 2)[0], "*?[$") {
					return true
				}
			}
		}
		for _, f := range s.flags {
			if f.name == "mount" && s.name == "RUN" {
				kind, from, src := bindOf(f.value)
				if kind == "bind" && from == "" && path.Clean("/"+src) == "/" {
					return true
				}
			}
		}
	}
	return false
}

func (s *step) flag(name string) string {
	for _, f := range s.flags {
		if f.name == name {
			return f.value
		}
	}
	return ""
}

func bindOf(value string) (kind, from, source string) {
	kind = "bind"
	for f := range strings.SplitSeq(value, ",") {
		k, v, _ := strings.Cut(strings.Trim(f, `"`), "=")
		switch strings.ToLower(k) {
		case "type":
			kind = strings.ToLower(v)
		case "from":
			from = v
		case "source", "src":
			source = v
		}
	}
	return kind, from, source
}

// move rewrites all steps for a context in a subdirectory, beside our own files.
func (d *dockerfile) move(files []hidden) {
	ours := func(name string) bool {
		return slices.ContainsFunc(files, func(h hidden) bool { return h.name == name })
	}
	for i := range d.steps {
		s := &d.steps[i]
		changed := false
		if (s.name == "COPY" || s.name == "ADD") && s.flag("from") == "" {
			sources, to := s.paths()
			for k, src := range sources {
				if _, far := remoteHost(unquote(src)); far || ours(src) || strings.HasPrefix(src, "<<") {
					continue
				}
				if strings.HasPrefix(unquote(src), "..") {
					src = strings.TrimPrefix(path.Clean("/"+unquote(src)), "/")
				}
				sources[k] = contextDir + "/" + src
				changed = true
			}
			s.setPaths(sources, to)
		}
		for k, f := range s.flags {
			if s.name != "RUN" || f.name != "mount" {
				continue
			}
			if kind, from, src := bindOf(f.value); kind == "bind" && from == "" && !ours(src) {
				var fields []string
				for part := range strings.SplitSeq(f.value, ",") {
					if name, _, _ := strings.Cut(part, "="); !strings.EqualFold(name, "source") &&
						!strings.EqualFold(name, "src") {
						fields = append(fields, part)
					}
				}
				s.flags[k].value = strings.Join(append(fields, "source="+contextDir+path.Clean("/"+src)), ",")
				changed = true
			}
		}
		if !changed {
			continue
		}
		tail := ""
		for _, h := range s.here {
			if strings.Contains(s.rest, h.word) { // not rewritten: the frontend supports it
				tail += "\n" + h.text + h.name
			}
		}
		s.text = s.compose(d.escape) + tail
	}
}

// mark adds a label after each FROM. The classic builder creates an image and a container for every
// step. These inherit the label, so that the remains of a killed build can be recognized.
func (d *dockerfile) mark() {
	for i := range d.steps {
		if s := &d.steps[i]; s.name == "FROM" {
			s.text = s.compose(d.escape) + "\nLABEL " + labelBuild + "=1"
		}
	}
}
