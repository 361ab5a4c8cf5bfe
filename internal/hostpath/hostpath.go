// Package hostpath translates between the paths of a sandbox without isolation, whose root is a
// folder of the host, and the host's paths. It only works on text: what a path leads to is not looked
// at. The boundaries at which a path is recognized in a text are those of DeerFlow's local sandbox.
package hostpath

import (
	"path"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A Root is the folder of the host that is the root of a sandbox: an absolute path without a slash at
// its end. The empty Root is that of an isolated sandbox, and changes nothing.
type Root string

// Host returns the host's path of an absolute path of the sandbox. A path that is below the root
// already stays as it is.
func (r Root) Host(p string) string {
	if r == "" || Below(p, string(r)) {
		return path.Clean(p)
	}
	return path.Join(string(r), path.Clean("/"+p))
}

// Below reports whether a path is a folder, or is in it by its text alone.
func Below(p, folder string) bool {
	rest, ok := strings.CutPrefix(path.Clean(p), strings.TrimSuffix(folder, "/"))
	return ok && (rest == "" || rest[0] == '/')
}

// Mask replaces the host's paths in an output by those of the sandbox.
func (r Root) Mask(text string) string {
	if r == "" || !strings.Contains(text, string(r)) {
		return text
	}
	var b strings.Builder
	for {
		i := strings.Index(text, string(r))
		if i < 0 {
			break
		}
		after := text[i+len(r):]
		b.WriteString(text[:i])
		switch {
		case !endsInText(after):
			b.WriteString(string(r))
		case !strings.HasPrefix(after, "/"):
			b.WriteByte('/')
		}
		text = after
	}
	b.WriteString(text)
	return b.String()
}

// Command replaces the paths of the sandbox in a command line that are in one of the folders, which
// are absolute, by those of the host.
func (r Root) Command(text string, folders ...string) string {
	return r.insert(text, folders, endsInCommand)
}

// Content does the same with the content of a file.
func (r Root) Content(text string, folders ...string) string {
	return r.insert(text, folders, endsInText)
}

// insert puts the root before each path in one of the folders.
func (r Root) insert(text string, folders []string, ends func(after string) bool) string {
	if r == "" {
		return text
	}
	var b strings.Builder
	done := 0
	for i := 0; i < len(text); i++ {
		if text[i] != '/' || !Begins(text[:i]) || strings.HasPrefix(text[i:], string(r)) {
			continue
		}
		for _, f := range folders {
			if rest, ok := strings.CutPrefix(text[i:], f); ok && ends(rest) {
				b.WriteString(text[done:i])
				b.WriteString(string(r))
				done = i
				break
			}
		}
	}
	b.WriteString(text[done:])
	return b.String()
}

// endsInCommand reports whether the name of a folder ends before the rest of a command line.
func endsInCommand(rest string) bool {
	c, _ := utf8.DecodeRuneInString(rest)
	return rest == "" || unicode.IsSpace(c) || strings.ContainsRune(`/"';&|<>()`, c)
}

// endsInText does the same for any other text.
func endsInText(rest string) bool {
	c, _ := utf8.DecodeRuneInString(rest)
	return rest == "" || c == '/' || !word(c) && c != '.' && c != '-'
}

// Begins reports whether an absolute path may begin after a text. After a name, a variable or a
// pattern, a slash goes on with a path that has begun before.
func Begins(before string) bool {
	c, _ := utf8.DecodeLastRuneInString(before)
	return before == "" || !word(c) && !strings.ContainsRune(`/.-~+%@*?\]})`, c)
}

func word(c rune) bool { return c == '_' || unicode.IsLetter(c) || unicode.IsDigit(c) }
