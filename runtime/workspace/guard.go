package workspace

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"mvdan.cc/sh/v3/syntax"

	"github.com/evalrun/evalrun/internal/hostpath"
)

// systemDirs are what commands may name of the host, besides the sandbox's own folders.
var systemDirs = []string{"/bin", "/usr/bin", "/usr/sbin", "/sbin", "/opt/homebrew/bin", "/dev"}

// guard returns why a command line may not run without isolation, or "". These are DeerFlow's rules:
// they keep a well-meaning agent in its folders, and stop nobody who wants to leave them, by a
// variable or a program of its own.
func guard(command string, folders []string) string {
	if strings.Contains(strings.ToLower(command), "file://") {
		return "file:// addresses are refused"
	}
	f := parseShell(command)
	if f == nil {
		f = &syntax.File{}
		if slices.ContainsFunc(strings.Fields(command), climbs) {
			return "a path must not have .."
		}
	}
	why, left := "", maxVisits
	syntax.Walk(f, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.Word:
			if climbs(text(n)) {
				why = "a path must not have .."
			}
		case *syntax.CmdSubst:
			switch {
			case changesDir(n, &left):
				why = "cd in a substitution is refused"
			case left <= 0:
				why = "too many commands in commands"
			}
		case *syntax.CallExpr:
			if s := guardCall(n, folders); s != "" {
				why = s
			}
		}
		return why == ""
	})
	if why != "" {
		return why
	}
	if p := foreign(command, folders); p != "" {
		return fmt.Sprintf("%s is not below %s", p, strings.Join(folders, ", "))
	}
	return ""
}

// climbs reports whether a word is a path with a segment "..".
func climbs(word string) bool {
	if strings.Contains(word, "://") {
		return false
	}
	return slices.Contains(strings.FieldsFunc(word, func(r rune) bool { return strings.ContainsRune("/=:,'\"", r) }), "..")
}

func changesDir(n *syntax.CmdSubst, left *visits) (found bool) {
	for _, s := range n.Stmts {
		syntax.Walk(s, func(n syntax.Node) bool {
			if call, ok := n.(*syntax.CallExpr); ok && len(call.Args) > 0 {
				name, _ := cdOf(call)
				found = found || name != ""
			}
			return !found && left.more()
		})
	}
	return found
}

// cdOf returns cd or pushd with its arguments, if that is what a command is.
func cdOf(call *syntax.CallExpr) (name string, args []*syntax.Word) {
	args = call.Args
	for len(args) > 0 && (text(args[0]) == "command" || text(args[0]) == "builtin") {
		args = args[1:]
	}
	if len(args) == 0 {
		return "", nil
	}
	if name = text(args[0]); name != "cd" && name != "pushd" {
		return "", nil
	}
	for args = args[1:]; len(args) > 0; args = args[1:] {
		if s := text(args[0]); s == "-" || !strings.HasPrefix(s, "-") {
			break
		}
	}
	return name, args
}

// rootReaders are commands for which / alone is refused.
var rootReaders = words("awk cat cp du find grep head less ln ls more mv rm sed tail tar")

func guardCall(call *syntax.CallExpr, folders []string) string {
	if name, args := cdOf(call); name != "" {
		if len(args) == 0 {
			return name + " needs a folder"
		}
		to := text(args[0])
		plain := len(args[0].Parts) > 0
		if plain {
			first := args[0].Parts[0]
			if q, ok := first.(*syntax.DblQuoted); ok && len(q.Parts) > 0 {
				first = q.Parts[0]
			}
			switch first.(type) {
			case *syntax.Lit, *syntax.SglQuoted, *syntax.DblQuoted:
			default:
				plain = false
			}
		}
		switch {
		case !plain, to == "", to == "-", to[0] == '~':
			return name + " needs a folder that is named"
		case path.IsAbs(to) && !slices.ContainsFunc(folders, func(f string) bool { return hostpath.Below(to, f) }):
			return fmt.Sprintf("%s %s leads out of %s", name, to, strings.Join(folders, ", "))
		}
	}
	if len(call.Args) > 0 && rootReaders[base(text(call.Args[0]))] {
		for _, w := range call.Args[1:] {
			if text(w) == "/" {
				return base(text(call.Args[0])) + " of / is refused"
			}
		}
	}
	return ""
}

var (
	webAddress = regexp.MustCompile(`(?i)https?://[^\s"'` + "`" + `<>]*`)
	// names are braces that stand for a part of a path in a text: /devices/{id}
	names = regexp.MustCompile(`\{[A-Za-z_][A-Za-z0-9_]*\}`)
)

// foreign returns the first absolute path in a text that is not in one of the folders, nor among what
// the host has for everybody; "" if there is none.
func foreign(command string, folders []string) string {
	command = webAddress.ReplaceAllString(command, "")
	for i := 0; i < len(command); i++ {
		if command[i] != '/' || !hostpath.Begins(command[:i]) {
			continue
		}
		p := command[i:]
		if n := strings.IndexFunc(p, func(r rune) bool {
			return unicode.IsSpace(r) || strings.ContainsRune("\"'`;&|<>()", r)
		}); n >= 0 {
			p = p[:n]
		}
		i += len(p) - 1
		switch {
		case strings.Trim(p, "/") == "", strings.ContainsFunc(p, func(r rune) bool { return r > unicode.MaxASCII }):
			continue
		case strings.Contains(p, "{") && !strings.Contains(p, "${") &&
			!strings.ContainsAny(names.ReplaceAllString(p, ""), "{}"):
			continue
		case slices.ContainsFunc(folders, func(f string) bool { return hostpath.Below(p, f) }),
			slices.ContainsFunc(systemDirs, func(d string) bool { return strings.HasPrefix(p, d+"/") && hostpath.Below(p, d) }):
			continue
		}
		return p
	}
	return ""
}
