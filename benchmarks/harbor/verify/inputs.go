package verify

import (
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/benchmarks/filetree"
)

// inputs are what can be told of a verifier by reading its scripts: a superset, for a word in a
// comment counts as well.
type inputs struct {
	words  map[string]bool // that could be names of programs, or of modules
	run    []string        // files outside of /tests that scripts execute or source; of a home with "~/"
	python bool
	login  bool // start-up files of shells are read
}

// Bounds of what is read of the tests.
const (
	maxInputs = 500
	maxWords  = 5000
)

var (
	word = regexp.MustCompile(`[A-Za-z_][A-Za-z0-9_.+-]{0,63}`)
	// A path that stands where a command does, or follows source, ".", bash, sh, exec.
	runs  = regexp.MustCompile(`(?m)(?:^|[;&|(\x60]|\b(?:then|do|else|source|exec|bash|sh)\b|(?:^|\s)\.)[ \t]*["']?((?:~|\$HOME|\$\{HOME\})?/[A-Za-z0-9_./+@-]+)`)
	login = regexp.MustCompile(`\bsh\s+-[a-z]*[li]|--login|\bBASH_ENV\b|\.bashrc|\.profile|\.bash_profile|/etc/profile`)
)

// readInputs reads what goes to /tests.
func readInputs(t *filetree.Tree) (*inputs, error) {
	in := &inputs{words: map[string]bool{}}
	n := 0
	for name, f := range t.All() {
		ext := path.Ext(name)
		in.python = in.python || ext == ".py"
		if !f.Mode.IsRegular() || f.Size > 256<<10 || ext != ".sh" && ext != ".py" && ext != "" {
			continue
		}
		if n++; n > maxInputs {
			break
		}
		text, err := fs.ReadFile(t, name)
		if err != nil {
			return nil, err
		}
		in.add(string(text), ext != ".py")
	}
	for _, w := range []string{"python", "python3", "pytest", "uv", "uvx", "pip", "pip3"} {
		in.python = in.python || in.words[w]
	}
	slices.Sort(in.run)
	in.run = slices.Compact(in.run)
	return in, nil
}

// add reads one script.
func (in *inputs) add(text string, shell bool) {
	for _, w := range word.FindAllString(text, -1) {
		if len(in.words) < maxWords {
			in.words[strings.TrimRight(w, ".-")] = true
		}
	}
	if !shell {
		return
	}
	in.login = in.login || login.MatchString(text)
	for _, m := range runs.FindAllStringSubmatch(text, 200) {
		p := m[1]
		for _, home := range []string{"$HOME", "${HOME}"} {
			if rest, ok := strings.CutPrefix(p, home); ok {
				p = "~" + rest
			}
		}
		if p = path.Clean(p); len(p) > 2 && !strings.HasPrefix(p, "/tests/") && !strings.HasPrefix(p, "/logs/") &&
			!strings.HasPrefix(p, "/dev/") {
			in.run = append(in.run, p)
		}
	}
}

// shellPrograms are programs that scripts use without a word, or that others use for them.
var shellPrograms = []string{"sh", "bash", "dash", "env", "busybox"}

// uses reports whether the verifier may start a program of this name.
func (in *inputs) uses(name string) bool {
	if slices.Contains(shellPrograms, name) || in.words[name] {
		return true
	}
	return in.python && (strings.HasPrefix(name, "python") || strings.HasPrefix(name, "pytest") || name == "py.test")
}

// imports reports whether the verifier may import a module of this name.
func (in *inputs) imports(name string) bool {
	if slices.Contains(pytestModules, name) {
		return true
	}
	name, _, _ = strings.Cut(name, ".")
	return in.words[name]
}

// pytestModules run Python tests.
var pytestModules = []string{"pytest", "_pytest", "pluggy", "iniconfig", "packaging", "exceptiongroup", "tomli",
	"pytest.py", "py.py", "pytest_json_ctrf"}
