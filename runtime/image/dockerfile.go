package image

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// maxDockerfile limits the size of a Dockerfile.
const maxDockerfile = 1 << 20

// A dockerfile is a parsed Dockerfile, in as much detail as is needed to check and to rewrite it.
type dockerfile struct {
	lines  []string // without line ends, CRLF or LF
	escape byte
	syntax string // the value of its syntax directive, or ""
	heads  []int  // indexes of lines that look like syntax directives, effective or not
	steps  []step
}

// A step is one instruction.
type step struct {
	line, end int    // line numbers from 1, both included, with here-documents
	name      string // in capitals
	flags     []flag
	rest      string // what follows the flags, continuation lines joined
	here      []heredoc
	inner     *step  // of ONBUILD: the instruction inside
	text      string // replaces its lines; "": not rewritten
}

type flag struct{ name, value string }

func (f flag) String() string {
	if f.value == "" {
		return "--" + f.name
	}
	return "--" + f.name + "=" + f.value
}

type heredoc struct {
	name   string
	word   string // as written: <<-"EOF"
	quoted bool   // variables in it stay as they are
	chomp  bool   // leading tabs are removed
	text   string
}

// A lineError is an error in one line of a Dockerfile.
type lineError struct {
	line int
	what string
}

func (e *lineError) Error() string { return fmt.Sprintf("Dockerfile line %d: %s", e.line, e.what) }

func wrong(line int, format string, args ...any) error {
	return &lineError{line, fmt.Sprintf(format, args...)}
}

var (
	directive = regexp.MustCompile(`^[ \t]*#[ \t]*([a-zA-Z][a-zA-Z0-9]*)[ \t]*=[ \t]*(.+?)[ \t]*$`)
	hereWord  = regexp.MustCompile(`^[0-9]*<<(-?)([^<]+)$`)
)

var instructions = strings.Fields("ADD ARG CMD COPY ENTRYPOINT ENV EXPOSE FROM HEALTHCHECK LABEL MAINTAINER ONBUILD " +
	"RUN SHELL STOPSIGNAL USER VOLUME WORKDIR")

// parse parses a Dockerfile by the rules that all builders share. Where they differ (a line that
// ends in two escape characters) it fails, so that no builder reads another Dockerfile than the one
// that was checked.
func parse(text string) (*dockerfile, error) {
	switch {
	case len(text) > maxDockerfile:
		return nil, fmt.Errorf("the Dockerfile is larger than %d bytes", maxDockerfile)
	case strings.ContainsRune(text, 0):
		return nil, errors.New("the Dockerfile holds a NUL byte")
	}
	text = strings.TrimPrefix(text, "\ufeff")
	text = strings.ReplaceAll(text, "\r\n", "\n")
	d := &dockerfile{lines: strings.Split(strings.TrimSuffix(text, "\n"), "\n"), escape: '\\'}
	if err := d.directives(); err != nil {
		return nil, err
	}
	for i := 0; i < len(d.lines); {
		if blank(d.lines[i]) {
			i++
			continue
		}
		s, next, err := d.step(i)
		if err != nil {
			return nil, err
		}
		d.steps = append(d.steps, s)
		i = next
	}
	if len(d.steps) == 0 {
		return nil, errors.New("the Dockerfile has no instruction")
	}
	return d, nil
}

// blank reports whether a line is empty or a comment. Such lines are skipped between continuation
// lines too.
func blank(line string) bool {
	t := strings.TrimLeft(line, " \t\v\f\r")
	return t == "" || t[0] == '#'
}

// directives reads the comments at the beginning, up to the first line that is no directive.
func (d *dockerfile) directives() error {
	inForce := true
	seen := map[string]bool{}
	for i, line := range d.lines {
		if !blank(line) {
			return nil
		}
		if i == 0 && strings.HasPrefix(line, "#!") {
			continue
		}
		m := directive.FindStringSubmatch(line)
		if m == nil {
			inForce = false
			continue
		}
		key := strings.ToLower(m[1])
		if key == "syntax" {
			d.heads = append(d.heads, i)
		}
		if !inForce {
			continue
		}
		if seen[key] {
			return wrong(i+1, "a second %s directive", key)
		}
		switch key {
		case "syntax":
			d.syntax = m[2]
		case "escape":
			if m[2] != "\\" && m[2] != "`" {
				return wrong(i+1, "escape=%s: only \\ and ` can escape", m[2])
			}
			d.escape = m[2][0]
		case "check":
		default:
			inForce = false
			continue
		}
		seen[key] = true
	}
	return nil
}

// step parses the instruction that begins at line i (from 0), and returns the index of the line
// after it.
func (d *dockerfile) step(i int) (step, int, error) {
	s := step{line: i + 1}
	var logical strings.Builder
	for ; i < len(d.lines); i++ {
		line := d.lines[i]
		if i+1 > s.line && blank(line) {
			continue
		}
		body, more := strings.CutSuffix(strings.TrimRight(line, " \t"), string(d.escape))
		if !more {
			logical.WriteString(line)
			i++
			break
		}
		if strings.HasSuffix(body, string(d.escape)) {
			return s, 0, wrong(i+1, "it ends in two escape characters, which some builders take for a continuation "+
				"and some do not; write it otherwise")
		}
		logical.WriteString(body)
	}
	s.end = i
	if err := s.read(logical.String(), d.escape); err != nil {
		return s, 0, err
	}
	inner := &s
	if s.inner != nil {
		inner = s.inner
	}
	if err := d.heredocs(inner, &i); err != nil {
		return s, 0, err
	}
	s.end, inner.end = i, i
	return s, i, nil
}

// read parses one logical line.
func (s *step) read(text string, escape byte) error {
	text = strings.TrimSpace(text)
	name, rest, _ := cutSpace(text)
	s.name = strings.ToUpper(name)
	if !slices.Contains(instructions, s.name) {
		return wrong(s.line, "unknown instruction %q", name)
	}
	if s.name == "ONBUILD" {
		s.inner = &step{line: s.line}
		if err := s.inner.read(rest, escape); err != nil {
			return err
		}
		if n := s.inner.name; n == "ONBUILD" || n == "FROM" || n == "MAINTAINER" {
			return wrong(s.line, "ONBUILD %s is not possible", n)
		}
	}
	for strings.HasPrefix(rest, "--") {
		word, after := flagWord(rest, escape)
		if word == "--" {
			rest = after
			break
		}
		name, value, _ := strings.Cut(word[2:], "=")
		s.flags = append(s.flags, flag{name, value})
		rest = after
	}
	s.rest = rest
	return nil
}

func cutSpace(s string) (before, after string, found bool) {
	i := strings.IndexAny(s, " \t\v\f\r\n")
	if i < 0 {
		return s, "", false
	}
	return s[:i], strings.TrimLeft(s[i:], " \t\v\f\r\n"), true
}

// flagWord reads one flag, which may contain quoted or escaped blanks.
func flagWord(s string, escape byte) (word, rest string) {
	var b strings.Builder
	quote := byte(0)
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case c == escape && i+1 < len(s):
			i++
			b.WriteByte(s[i])
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '"' || c == '\''):
			quote = c
		case quote == 0 && strings.IndexByte(" \t\v\f\r\n", c) >= 0:
			return b.String(), strings.TrimLeft(s[i:], " \t\v\f\r\n")
		default:
			b.WriteByte(c)
		}
	}
	return b.String(), ""
}

// heredocs reads the here-documents of an instruction. i is the index of the line after it, and is
// moved behind them. A here-document without an end is none: in "RUN echo $((1 <<2))" nothing
// follows.
func (d *dockerfile) heredocs(s *step, i *int) error {
	if s.name != "RUN" && s.name != "COPY" && s.name != "ADD" {
		return nil
	}
	for _, w := range shellWords(s.rest) {
		m := hereWord.FindStringSubmatch(w)
		if m == nil {
			continue
		}
		h := heredoc{word: w, name: strings.NewReplacer(`"`, "", "'", "", `\`, "").Replace(m[2]), chomp: m[1] == "-"}
		h.quoted = h.name != m[2]
		if h.name == "" {
			continue
		}
		end := slices.IndexFunc(d.lines[*i:], func(line string) bool {
			if h.chomp {
				line = strings.TrimLeft(line, "\t")
			}
			return line == h.name
		})
		if end < 0 {
			if s.name == "RUN" {
				continue
			}
			return wrong(s.line, "the here-document %s has no end: a line with %s alone", w, h.name)
		}
		var b strings.Builder
		for _, line := range d.lines[*i : *i+end] {
			if h.chomp {
				line = strings.TrimLeft(line, "\t")
			}
			b.WriteString(line + "\n")
		}
		h.text = b.String()
		s.here = append(s.here, h)
		*i += end + 1
	}
	return nil
}

// shellWords splits at unquoted blanks. It keeps quotes and escapes.
func shellWords(s string) []string {
	var words []string
	var b strings.Builder
	quote := byte(0)
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case c == '\\' && quote != '\'' && i+1 < len(s):
			b.WriteByte(c)
			i++
			b.WriteByte(s[i])
			continue
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '"' || c == '\''):
			quote = c
		case quote == 0 && strings.IndexByte(" \t\v\f\r\n", c) >= 0:
			if b.Len() > 0 {
				words = append(words, b.String())
				b.Reset()
			}
			continue
		}
		b.WriteByte(c)
	}
	if b.Len() > 0 {
		words = append(words, b.String())
	}
	return words
}

// String returns the Dockerfile with its rewritten steps. The line numbers of steps stay the same
// if the rewritten steps are not longer.
func (d *dockerfile) String() string {
	var b strings.Builder
	next := 0
	for _, s := range d.steps {
		if s.text == "" {
			continue
		}
		for ; next < s.line-1; next++ {
			b.WriteString(d.lines[next] + "\n")
		}
		b.WriteString(s.text + "\n")
		for next += strings.Count(s.text, "\n") + 1; next < s.end; next++ {
			b.WriteString("#\n")
		}
		next = s.end
	}
	for ; next < len(d.lines); next++ {
		b.WriteString(d.lines[next] + "\n")
	}
	return b.String()
}
