package verify

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/evalrun/evalrun/benchmarks/harbor/format"
	"github.com/evalrun/evalrun/benchmarks/score"

	"github.com/evalrun/evalrun/runtime/executor"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// findings are what was found of tampering: flags, and for each the paths or events that it stands
// for.
type findings struct {
	flags []string
	notes []string // "planted: /app/conftest.py is new"
}

// add adds the flag if there are notes.
func (f *findings) add(flag string, notes ...string) {
	for _, n := range notes {
		f.flags = addFlags(f.flags, flag)
		if len(f.notes) < 50 {
			f.notes = append(f.notes, flag+": "+score.Clean(n))
		}
	}
}

// why says it in a sentence or two.
func (f *findings) why() string {
	const most = 6
	if len(f.notes) <= most {
		return strings.Join(f.notes, "; ")
	}
	return strings.Join(f.notes[:most], "; ") + "; …"
}

// compare looks for changes that the verifier would meet, after the agent and before the verifier.
// What it can undo without harm it undoes: compiled Python of the agent's making is removed, and
// the loader's cache made again.
func (g *Guard) compare(ctx context.Context, f *findings) error {
	m, ok := monitorOf(g.sb)
	if !ok || g.in == nil {
		return nil
	}
	list, cut, err := m.Changes(ctx, beforeAgent)
	if err != nil {
		return err
	}
	slices.SortFunc(list, func(a, b executor.Change) int { return strings.Compare(a.Path, b.Path) })
	if cut {
		f.add(FlagPlanted, "more files were added or changed than can be looked through")
	}
	var compiled []string
	cache, conf := false, false
	for _, c := range list {
		if c.What == executor.Gone {
			continue // what is missing cannot lie
		}
		switch dir, base := path.Split(c.Path); {
		case strings.HasSuffix(base, ".pyc"):
			compiled = append(compiled, c.Path)
			continue
		case strings.HasSuffix(strings.TrimSuffix(dir, "/"), "__pycache__") || base == "__pycache__":
			continue
		case c.Path == "/etc/ld.so.cache":
			cache = true
			continue
		case strings.HasPrefix(c.Path, "/etc/ld.so.conf"):
			conf = true
		}
		flag := g.judge(c)
		if flag == FlagPlanted {
			harmless, err := g.harmless(ctx, c)
			if err != nil {
				return err
			}
			if harmless {
				continue
			}
		}
		if flag != "" {
			f.add(flag, c.Path+" "+describe(c))
		}
	}
	links, err := m.Links(ctx, g.dir, format.TestsDir, format.VerifierLogs, format.SolutionDir)
	if err != nil {
		return err
	}
	for _, l := range links {
		f.add(FlagPlanted, l+" is a link to what the verifier brings")
	}
	if len(compiled) > 0 {
		if err := m.Remove(ctx, compiled...); err != nil {
			return err
		}
	}
	if cache && !conf && !slices.Contains(f.flags, FlagTools) {
		// An installed library changes it; so does who wants another library to be found first.
		if _, err := g.sb.Exec(ctx, sandbox.Command{Args: []string{"/sbin/ldconfig"}, User: "root",
			Timeout: 5 * time.Minute}); err != nil {
			return err
		}
	}
	return nil
}

func describe(c executor.Change) string {
	switch c.What {
	case executor.Added:
		return "is new"
	case executor.Shadows:
		return "is new and found before, or in place of, the image's"
	}
	return "is not as it was"
}

// judge says what a change means; "": nothing.
func (g *Guard) judge(c executor.Change) string {
	dir, base := path.Split(c.Path)
	dir = strings.TrimSuffix(dir, "/")
	folder := c.Mode&0o170000 == 0o040000
	added := c.What != executor.Altered
	switch {
	case slices.Contains([]string{"/lib", "/lib64", "/bin", "/sbin", "/etc/ld.so.preload"}, c.Path):
		return FlagTools
	case slices.Contains(g.in.run, c.Path), g.runs(c.Path):
		return FlagPlanted
	case slices.Contains(g.path, dir):
		switch {
		case folder || !g.in.uses(base):
			return ""
		case c.What == executor.Added:
			return FlagPlanted // the image had none
		}
		return FlagTools
	case base == "glibc-hwcaps":
		return FlagTools
	case strings.Contains(c.Path, "/lib/python3") || strings.HasPrefix(c.Path, "/lib/python3"):
		return g.python(c, added)
	case strings.Contains(dir, "/lib") && strings.Contains(base, ".so") || strings.HasPrefix(base, "ld-linux") ||
		strings.HasPrefix(base, "ld-musl"):
		if added {
			return ""
		}
		return FlagTools
	case strings.HasPrefix(c.Path, "/etc/alternatives/"):
		if g.in.uses(base) {
			return FlagTools
		}
		return ""
	case folder:
		return ""
	case strings.HasPrefix(c.Path, "/etc/") || strings.HasPrefix(c.Path, "/var/spool/cron/"):
		return g.etc(c.Path, base)
	case slices.Contains(localFiles, base) && (dir == g.dir || strings.HasPrefix(g.dir+"/", dir+"/") || dir == ""):
		return FlagPlanted
	case strings.HasPrefix(c.Path, path.Join(g.dir, ".git")+"/"):
		if strings.HasSuffix(base, ".sample") {
			return ""
		}
		return FlagPlanted
	}
	return g.home(c.Path, base)
}

// runs reports whether a script of the tests runs a file of somebody's home.
func (g *Guard) runs(name string) bool {
	return slices.ContainsFunc(g.in.run, func(r string) bool {
		rest, ok := strings.CutPrefix(r, "~/")
		return ok && strings.HasSuffix(name, "/"+rest)
	})
}

// python judges a file below a lib/python3.N.
func (g *Guard) python(c executor.Change, added bool) string {
	dir, base := path.Split(c.Path)
	third := ""
	for _, site := range []string{"/site-packages/", "/dist-packages/"} {
		if _, after, ok := strings.Cut(c.Path, site); ok {
			third = after
		}
	}
	auto := base == "sitecustomize.py" || base == "usercustomize.py" || base == "sitecustomize" ||
		base == "usercustomize"
	switch {
	case auto && added:
		return FlagPlanted
	case c.Mode&0o170000 == 0o040000:
		return ""
	case third == "" && strings.HasSuffix(strings.TrimSuffix(dir, "/"), "-packages"):
		return ""
	case third == "": // of Python itself
		if added {
			return FlagPlanted
		}
		return FlagTools
	}
	top, _, _ := strings.Cut(third, "/")
	switch {
	case strings.HasSuffix(base, ".pth") && top == base:
		return FlagPlanted
	case base == "entry_points.txt" && strings.HasSuffix(top, ".dist-info"):
		return FlagPlanted
	case slices.Contains(pytestModules, top):
		if added {
			return FlagPlanted
		}
		return FlagTools
	case !added && g.in.imports(top):
		return FlagTools
	}
	return ""
}

// etc judges a file below /etc, or of cron.
func (g *Guard) etc(name, base string) string {
	shells := []string{"/etc/profile", "/etc/bash.bashrc", "/etc/bashrc", "/etc/environment"}
	switch {
	case slices.Contains(shells, name) || strings.HasPrefix(name, "/etc/profile.d/"):
		if g.in.login {
			return FlagPlanted
		}
		return ""
	case name == "/etc/gitconfig":
		return g.when("git")
	case name == "/etc/pip.conf":
		return g.when("pip", "pip3", "uv")
	case name == "/etc/npmrc":
		return g.when("npm", "npx")
	case name == "/etc/curlrc":
		return g.when("curl")
	case name == "/etc/wgetrc":
		return g.when("wget")
	case strings.HasPrefix(base, ".placeholder"):
		return ""
	}
	return FlagPlanted
}

func (g *Guard) when(words ...string) string {
	if slices.ContainsFunc(words, func(w string) bool { return g.in.words[w] }) {
		return FlagPlanted
	}
	return ""
}

// home judges a file of somebody's home.
func (g *Guard) home(name, base string) string {
	switch base {
	case ".bashrc", ".bash_profile", ".bash_login", ".profile", ".bash_logout", ".zshrc", ".zshenv":
		if g.in.login {
			return FlagPlanted
		}
		return ""
	case ".gitconfig":
		return g.when("git")
	case "config": // .config/git/config
		return g.when("git")
	case "pip.conf", "uv.toml", ".pydistutils.cfg":
		return g.when("pip", "pip3", "uv")
	case ".curlrc", ".netrc":
		return g.when("curl", "wget", "git")
	case ".wgetrc":
		return g.when("wget")
	case ".npmrc":
		return g.when("npm", "npx")
	}
	return ""
}

var (
	imports = regexp.MustCompile(`(?m)^import[ \t]`)
	plugin  = regexp.MustCompile(`(?m)^\[\s*pytest11\s*\]`)
	pytests = regexp.MustCompile(`(?m)^\[\s*(?:tool:|tool\.)?pytest`)
	gitRuns = regexp.MustCompile(`(?i)hookspath|fsmonitor|\balias\b|\binclude|pager|editor|command|program|textconv|\[filter|\[diff|insteadof|helper`)
)

// harmless reads files of which most are innocent: paths for Python without code, packages without
// a plug-in, git's name and address.
func (g *Guard) harmless(ctx context.Context, c executor.Change) (bool, error) {
	var suspicious *regexp.Regexp
	switch base := path.Base(c.Path); {
	case strings.HasSuffix(base, ".pth"):
		suspicious = imports
	case base == "entry_points.txt":
		suspicious = plugin
	case base == "pyproject.toml" || base == "tox.ini" || base == "setup.cfg":
		suspicious = pytests
	case base == ".gitconfig" || base == "gitconfig" || base == "config":
		suspicious = gitRuns
	default:
		return false, nil
	}
	text, err := sandbox.ReadFile(ctx, g.sb, c.Path, 1<<20)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return true, nil
	case errors.As(err, new(*sandbox.FileError)):
		return false, nil
	case err != nil:
		return false, err
	}
	return !suspicious.Match(text), nil
}
