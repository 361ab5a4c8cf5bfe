package format

import (
	"io/fs"
	"maps"
	"strings"
	"testing"
	"testing/fstest"
)

// The digests are those of Harbor 0.20's own code for the same files.
func TestDigest(t *testing.T) {
	base := map[string]string{
		"task.toml": "x = 1\n", "instruction.md": "Do it.\n", "README.md": "r",
		"environment/Dockerfile": "FROM debian\n", "environment/a/b.txt": "b", "environment/a-b": "-",
		"environment/__pycache__/c": "c", "tests/test.sh": "t", "tests/x.pyc": "p", "tests/.DS_Store": "d",
		"solution/solve.sh~": "s", "solution/solve.sh": "s",
		"steps/one/instruction.md": "i", "other/file": "o", "LICENSE": "l", "environment/é": "e",
		"environment/sub/.git/config": "g",
	}
	with := func(ignore string) map[string]string {
		out := maps.Clone(base)
		out[".gitignore"] = ignore
		return out
	}
	for _, c := range []struct {
		name        string
		files       map[string]string
		digest, env string
	}{
		{"plain", base, "sha256:9720de4014e4305016b2b7988d959de4174988f76e6a9a8dc7c29e03819672ea",
			"4620c08ab266d11d110f61093f663911"},
		{"gitignore", with("# all logs\n*.txt\n!b.txt\n/tests/x*\nsolution/\n!solution/solve.sh\r\n"),
			"sha256:e6e46e8fc607620b837ffb21fc09123970984c0a66c5aa5e6a645533ee7b3ee8",
			"4620c08ab266d11d110f61093f663911"},
		{"an empty gitignore", with(""), "sha256:3f402add54be3e7517c2df8635862be6aa297e64140eb01028f87dd1770865b7",
			"4620c08ab266d11d110f61093f663911"},
		{"least", map[string]string{"task.toml": ""},
			"sha256:a92f9491a6d1cd9dd9973c8ce0ab65ebd364f3ae672241216badf25498a57d5f",
			"3be3c43cd7ee541bb601f8131132ed02"},
	} {
		m := fstest.MapFS{"environment": {Mode: fs.ModeDir | 0o755}}
		for name, text := range c.files {
			m[name] = &fstest.MapFile{Data: []byte(text), Mode: 0o600}
		}
		// a link to a file counts as the file where tasks are told apart, and links are nothing to
		// an environment's hash
		if c.name == "plain" {
			m["environment/link"] = &fstest.MapFile{Data: []byte("Dockerfile"), Mode: fs.ModeSymlink | 0o777}
			m["environment/dirlink"] = &fstest.MapFile{Data: []byte("a"), Mode: fs.ModeSymlink | 0o777}
			m["environment/gone"] = &fstest.MapFile{Data: []byte("nowhere"), Mode: fs.ModeSymlink | 0o777}
		}
		if got, err := taskDigest(m); got != c.digest || err != nil {
			t.Errorf("%s: %s, %v", c.name, got, err)
		}
		if got, err := environmentHash(m, "environment", "debian:12"); got != c.env || err != nil {
			t.Errorf("%s: environment: %s, %v", c.name, got, err)
		}
	}
	if got, err := environmentHash(fstest.MapFS{}, "environment", ""); got != "ba5285161ba6eed0085fb13784ce5c92" ||
		err != nil {
		t.Errorf("no file and no image: %s, %v", got, err)
	}
	pipe := fstest.MapFS{"task.toml": {}, "tests/pipe": {Mode: fs.ModeNamedPipe}}
	if _, err := taskDigest(pipe); err == nil ||
		!strings.Contains(err.Error(), "tests/pipe is a device, a pipe or a socket") {
		t.Error(err)
	}
}

// Patterns (cut at |), a file, and whether it is left out: as Harbor's library (pathspec 1.1) says,
// of which 20,000 were compared.
func TestIgnore(t *testing.T) {
	for _, c := range []struct {
		patterns, file string
		out            bool
	}{
		{`?`, "a*b/b/a*b/a", true},
		{`*/*/**/ `, "a/fo/a*b", true},
		{`*/`, "a/c.pyc", true},
		{`*`, "éa/__pycache__/x.py", true},
		{`a`, "__pycache__/a", true},
		{`[ab]`, "b", true},
		{`a\*b`, "b/foo bar/a*b", true},
		{`**/[ab]`, "b", true},
		{`**/*/f*o`, "foo/build/fo/b", true},
		{`/build/*`, "build/fo", true},
		{`foo`, ".x/a/foo", true},
		{`foo bar`, ".x/foo bar/.x", true},
		{`**/*.py`, "__pycache__/c.pyc/a*b/x.py", true},
		{`*.py/`, ".x/x.py/foo", true},
		{`[ab]`, "b/a", true},
		{`/f*o`, "fo", true},
		{`*`, "fo/a/foo/x.py", true},
		{`*`, "a", true},
		{`/?`, "a/a*b", true},
		{`/é*`, "éa", true},
		{`f*o`, "__pycache__/fo", true},
		{`/[ab]`, "b/build", true},
		{`[ab] `, "a/x.py", true},
		{`*/`, "b/a*b/.x", true},
		{`é*`, "éa/.x", true},
		{`!a/b|[ab]/a/*|**/`, "fo/c.pyc/a/éa", true},
		{`*/**/ |/.x`, "c.pyc/b", true},
		{`f*o|a\*b/*/a|*`, ".x/__pycache__/build/x.py", true},
		{`!/__pycache__|a|!/f*o/build/`, "a", true},
		{`/a/foo bar|f*o`, "foo/build", true},
		{`/.x |!*.py|f*o`, ".x/fo", true},
		{`!b/|foo`, "foo/.x/foo bar/fo", true},
		{`a\*b/*|__pycache__/|*`, "éa/__pycache__/foo/.x", true},
		{`!*|?`, "build/a/fo", true},
		{`[!a]/__pycache__|a\*b `, "a*b", true},
		{`build|f*o/f*o|/b`, "foo bar/a*b/build", true},
		{`/a\*b|.x/[ab]/|a\*b/a/f*o`, "a*b/fo", true},
		{`!a\*b|/foo bar|é*/`, "foo bar/fo", true},
		{`é*|/[ab]`, "éa/.x", true},
		{`?/?/foo|é*`, "éa/a*b", true},
		{`/[!a]/é*|[ab]/foo bar|*.py`, "a/a/éa", false},
		{`!__pycache__|![ab]/f*o`, "build/éa/build", false},
		{`*.py/é*/b|foo bar|!b`, "build/fo/__pycache__", false},
		{`__pycache__|/f*o/|é*`, "b/build/foo bar", false},
		{`/f*o|b/`, "__pycache__/foo/build", false},
		{`![ab]|!*/*`, "__pycache__/fo/__pycache__/a*b", false},
		{`!é*/foo bar|[!a]`, "build/éa", false},
		{`!__pycache__|!foo`, ".x/.x/éa", false},
		{`f*o |é*|#*.py`, "foo bar", false},
		{`?|foo bar/`, "foo bar", false},
		{`*/*`, "fo", false},
		{`a/*/*`, "__pycache__/b", false},
		{`/b/*`, "__pycache__/c.pyc/a", false},
		{`/*`, "éa/.x", false},
		{`build/a/*`, "x.py", false},
		{`[!a]/*|/*.py/*/|? `, "a*b/__pycache__/a*b", false},
		{`# x`, "# x", false},
		{`\#x`, "#x", true},
		{`\!x`, "!x", true},
		{``, "x", false},
		{`/`, "x", false},
	} {
		if got := parseIgnore(strings.ReplaceAll(c.patterns, "|", "\n")).match(c.file); got != c.out {
			t.Errorf("%q, %q: %v", c.patterns, c.file, got)
		}
	}
}
