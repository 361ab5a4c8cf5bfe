package workspace

import (
	"regexp"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// An audit is what DeerFlow's rules say about a command. It is kept with the command's result.
type audit struct {
	Verdict string   `json:"verdict"`         // auditPass, auditWarn or auditBlock
	Rules   []string `json:"rules,omitempty"` // what the command breaks, in order
	Ran     bool     `json:"ran"`
}

const (
	auditPass  = "pass"
	auditWarn  = "warn"
	auditBlock = "block"
)

// Rules that only warn. What they say is appended to the command's output. All others block.
var warnings = map[string]string{
	"chmod-777":   "chmod 777 lets every user write",
	"pip-install": "pip install changes the Python of the whole machine, unless it is that of a virtual environment",
	"apt-install": "packages that are installed are not there in another machine",
	"sudo":        "commands should not need another user's rights",
	"path":        "the command changes where programs are looked for",
}

// check classifies a command line.
func check(command string) audit {
	a := &auditor{rules: map[string]bool{}, left: maxVisits}
	a.script(command, 0)
	if a.left <= 0 {
		a.rules["nested"] = true
	}
	for rule, re := range rawRules {
		if re.MatchString(command) {
			a.rules[rule] = true
		}
	}
	out := audit{Verdict: auditPass}
	for rule := range a.rules {
		out.Rules = append(out.Rules, rule)
		switch {
		case warnings[rule] == "":
			out.Verdict = auditBlock
		case out.Verdict == auditPass:
			out.Verdict = auditWarn
		}
	}
	slices.Sort(out.Rules)
	return out
}

// notes returns what is appended to the output of a command.
func (a audit) notes() (out []string) {
	for _, rule := range a.Rules {
		if w := warnings[rule]; w != "" {
			out = append(out, w)
		}
	}
	return out
}

// rawRules are those that hold wherever the text is, also in quotes.
var rawRules = map[string]*regexp.Regexp{
	"environ":   regexp.MustCompile(`/proc/[^/\s]+/environ\b`),
	"dev-tcp":   regexp.MustCompile(`/dev/(tcp|udp)/`),
	"fork-bomb": regexp.MustCompile(`:\s*\(\s*\)\s*\{\s*:\s*\|\s*:\s*&\s*\}`),
}

var (
	shells       = words("sh bash dash zsh ksh ash")
	interpreters = words("sh bash dash zsh ksh ash python python2 python3 ruby perl node php")
	fetchers     = words("curl wget bash sh python python3 ruby perl base64")
	wrappers     = words("sudo su env nohup time nice ionice stdbuf setsid exec command builtin xargs timeout doas")
	roots        = words("/ /* ~ ~/ ~/* $HOME $HOME/ $HOME/* /home /home/ /home/* /root /root/ /root/*")
	startFiles   = words(".bashrc .bash_profile .bash_login .bash_logout .profile .zshrc .zprofile .zshenv .zlogin")
	codeFlags    = words("-c -e -p -r -lc -ic -ec -xc --eval --print")
)

func words(s string) map[string]bool {
	m := map[string]bool{}
	for _, w := range strings.Fields(s) {
		m[w] = true
	}
	return m
}

// An auditor collects the rules that a script breaks.
type auditor struct {
	rules map[string]bool
	left  visits
}

// visits limits how often parts of a script are looked at, because commands in commands are looked
// at once for each level.
type visits int

const maxVisits visits = 100_000

func (v *visits) more() bool { *v--; return *v > 0 }

const maxNested = 3 // scripts in scripts, such as bash -c "bash -c …"

// script checks a script of the shell. One that cannot be parsed is taken apart by its separators.
func (a *auditor) script(text string, nested int) {
	if nested > maxNested {
		return
	}
	f := parseShell(text)
	if f == nil {
		for _, part := range strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(";|&\n()", r) }) {
			fields := strings.Fields(part)
			for i, s := range fields {
				fields[i] = strings.Trim(s, `"'`+"`")
			}
			a.command(fields, nil, nested)
		}
		return
	}
	syntax.Walk(f, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.Stmt:
			a.statement(n, nested)
		case *syntax.BinaryCmd:
			a.pipe(n)
		case *syntax.Assign:
			a.assign(n)
		case *syntax.FuncDecl:
			a.function(n)
		}
		return true
	})
}

func (a *auditor) statement(s *syntax.Stmt, nested int) {
	call, _ := s.Cmd.(*syntax.CallExpr)
	var args []string
	if call != nil {
		for _, w := range call.Args {
			args = append(args, text(w))
		}
		a.command(args, call.Args, nested)
	}
	name := ""
	if rest := unwrap(args); len(rest) > 0 {
		name = base(rest[0])
	}
	for _, r := range s.Redirs {
		switch r.Op {
		case syntax.RdrOut, syntax.AppOut, syntax.RdrAll, syntax.AppAll, syntax.RdrClob, syntax.RdrInOut:
			if protected(text(r.Word)) {
				a.rules["redirect"] = true
			}
		case syntax.RdrIn:
			a.reads(text(r.Word))
		case syntax.WordHdoc:
			if interpreters[name] && a.fetches(r.Word) {
				a.rules["eval"] = true
			}
		case syntax.Hdoc, syntax.DashHdoc:
			if shells[name] && r.Hdoc != nil {
				a.script(text(r.Hdoc), nested+1)
			}
		}
	}
}

// protected reports whether a command should not write a file.
func protected(name string) bool {
	for _, dir := range []string{"/etc/", "/bin/", "/sbin/", "/usr/bin/", "/usr/sbin/"} {
		if strings.HasPrefix(name, dir) {
			return true
		}
	}
	dir, file := "", name
	if i := strings.LastIndexByte(name, '/'); i >= 0 {
		dir, file = name[:i], name[i+1:]
	}
	return startFiles[file] && (roots[dir] || strings.HasPrefix(dir, "/home/"))
}

func (a *auditor) reads(name string) {
	if name == "/etc/shadow" || name == "/etc/shadow-" {
		a.rules["shadow"] = true
	}
}

// command checks the words of a simple command. parts are the same words with what they consist
// of; nil: that is not known.
func (a *auditor) command(args []string, parts []*syntax.Word, nested int) {
	for _, w := range args {
		a.variable(w)
		a.reads(w)
	}
	for _, w := range args { // wrappers come first
		if !wrappers[base(w)] && !strings.HasPrefix(w, "-") && !strings.Contains(w, "=") {
			break
		}
		if w = base(w); w == "sudo" || w == "su" || w == "doas" {
			a.rules["sudo"] = true
		}
	}
	if len(parts) > 0 && a.fetches(parts[0]) {
		a.rules["eval"] = true
	}
	rest := unwrap(args)
	if len(rest) == 0 {
		return
	}
	name := base(rest[0])
	if parts != nil {
		parts = parts[len(args)-len(rest):]
	}
	rest = rest[1:]
	has := func(want ...string) bool {
		return slices.ContainsFunc(rest, func(w string) bool { return slices.Contains(want, w) })
	}
	switch {
	case name == "rm" && recursive(rest) && slices.ContainsFunc(rest, func(w string) bool { return roots[w] }):
		a.rules["rm"] = true
	case name == "dd" && slices.ContainsFunc(rest, func(w string) bool { return strings.HasPrefix(w, "if=") }):
		a.rules["dd"] = true
	case name == "mkfs" || strings.HasPrefix(name, "mkfs."):
		a.rules["mkfs"] = true
	case name == "chmod" && has("777", "0777", "a+rwx", "ugo+rwx"):
		a.rules["chmod-777"] = true
	case (name == "pip" || name == "pip3") && has("install"),
		strings.HasPrefix(name, "python") && has("pip") && has("install"):
		a.rules["pip-install"] = true
	case (name == "apt" || name == "apt-get" || name == "aptitude") && has("install"):
		a.rules["apt-install"] = true
	}
	if parts == nil {
		return
	}
	parts = parts[1:]
	switch {
	case name == "eval" || name == "source" || name == ".":
		if slices.ContainsFunc(parts, a.fetches) {
			a.rules["eval"] = true
		}
	case interpreters[name]:
		for i, w := range rest {
			if !codeFlags[w] || i+1 == len(rest) {
				continue
			}
			if slices.ContainsFunc(parts[i+1:], a.fetches) {
				a.rules["eval"] = true
			}
			if shells[name] {
				a.script(rest[i+1], nested+1)
			}
			break
		}
		if shells[name] && len(parts) > 0 && a.fetches(parts[0]) { // bash <(curl …)
			a.rules["eval"] = true
		}
	}
}

func recursive(args []string) bool {
	return slices.ContainsFunc(args, func(w string) bool {
		return w == "--recursive" || len(w) > 1 && w[0] == '-' && w[1] != '-' && strings.ContainsAny(w, "rR")
	})
}

// unwrap returns a command without what only starts it: sudo, env A=b, timeout 10.
func unwrap(args []string) []string {
	for wrapped := false; len(args) > 0; args = args[1:] {
		w := args[0]
		switch {
		case wrappers[base(w)]:
			wrapped = true
		case wrapped && w == "-u" && len(args) > 1: // the user of sudo
			args = args[1:]
		case wrapped && (strings.HasPrefix(w, "-") || strings.Contains(w, "=") || w != "" && w[0] >= '0' && w[0] <= '9'):
		default:
			return args
		}
	}
	return nil
}

// variable checks a word, or an assignment, that sets a variable.
func (a *auditor) variable(w string) {
	switch name, _, ok := strings.Cut(w, "="); {
	case !ok:
	case name == "LD_PRELOAD" || name == "LD_LIBRARY_PATH":
		a.rules["preload"] = true
	case name == "PATH":
		a.rules["path"] = true
	}
}

func (a *auditor) assign(s *syntax.Assign) {
	if s.Name != nil && !s.Naked {
		a.variable(s.Name.Value + "=")
	}
}

// pipe checks what two commands that are joined by a pipe do.
func (a *auditor) pipe(b *syntax.BinaryCmd) {
	if b.Op != syntax.Pipe && b.Op != syntax.PipeAll {
		return
	}
	if args := unwrap(callOf(b.Y)); len(args) > 0 && shells[base(args[0])] {
		a.rules["pipe-to-shell"] = true
	}
	from := b.X
	if last, ok := from.Cmd.(*syntax.BinaryCmd); ok { // a | b | c
		from = last.Y
	}
	if args := unwrap(callOf(from)); len(args) > 1 && base(args[0]) == "base64" &&
		slices.ContainsFunc(args[1:], func(w string) bool {
			return w == "--decode" || len(w) > 1 && w[0] == '-' && w[1] != '-' && strings.ContainsAny(w, "dD")
		}) {
		a.rules["base64"] = true
	}
}

func callOf(s *syntax.Stmt) (args []string) {
	if call, ok := s.Cmd.(*syntax.CallExpr); ok {
		for _, w := range call.Args {
			args = append(args, text(w))
		}
	}
	return args
}

// function finds a function that starts itself twice.
func (a *auditor) function(f *syntax.FuncDecl) {
	calls := func(s *syntax.Stmt) bool {
		args := callOf(s)
		return len(args) > 0 && args[0] == f.Name.Value
	}
	syntax.Walk(f.Body, func(n syntax.Node) bool {
		if !a.left.more() {
			return false
		}
		if b, ok := n.(*syntax.BinaryCmd); ok && b.Op == syntax.Pipe && calls(b.X) && calls(b.Y) {
			a.rules["fork-bomb"] = true
		}
		return true
	})
}

// fetches reports whether a word has the output of a program that fetches, decodes or makes code.
func (a *auditor) fetches(w *syntax.Word) (found bool) {
	syntax.Walk(w, func(n syntax.Node) bool {
		if !a.left.more() {
			return false
		}
		var stmts []*syntax.Stmt
		switch n := n.(type) {
		case *syntax.CmdSubst:
			stmts = n.Stmts
		case *syntax.ProcSubst:
			stmts = n.Stmts
		}
		for _, s := range stmts {
			syntax.Walk(s, func(n syntax.Node) bool {
				if !a.left.more() {
					return false
				}
				call, ok := n.(*syntax.CallExpr)
				if !ok || len(call.Args) == 0 {
					return !found
				}
				var args []string
				for _, w := range call.Args {
					args = append(args, text(w))
				}
				args = unwrap(args)
				found = found || len(args) > 0 && fetchers[base(args[0])]
				return !found
			})
		}
		return !found && stmts == nil
	})
	return found
}

func base(name string) string { return name[strings.LastIndexByte(name, '/')+1:] }

// text returns a word as the shell would, without its quotes. A plain variable stays as it is
// written, and other substitutions are left out.
func text(w *syntax.Word) string {
	var b strings.Builder
	var add func(parts []syntax.WordPart)
	add = func(parts []syntax.WordPart) {
		for _, p := range parts {
			switch p := p.(type) {
			case *syntax.Lit:
				b.WriteString(strings.ReplaceAll(p.Value, `\`, ""))
			case *syntax.SglQuoted:
				b.WriteString(p.Value)
			case *syntax.DblQuoted:
				add(p.Parts)
			case *syntax.ParamExp:
				if p.Param != nil {
					b.WriteString("$" + p.Param.Value)
				}
			}
		}
	}
	if w != nil {
		add(w.Parts)
	}
	return b.String()
}
