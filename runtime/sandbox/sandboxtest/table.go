package sandboxtest

import (
	"errors"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// abilities are the rows of the table of what each driver can do, with the tests that show it.
var abilities = []struct {
	what, tests string
	// machine reports whether this machine can do it, from the claims of a driver that can do it on
	// others; nil: the driver decides alone.
	machine func(Claims) bool
}{
	{"commands: arguments, input, environment, exit codes; each runs once, also if it is asked again",
		`exec/(codes|cannot-start|args|stdin|environment|remembers|parallel|context)`, nil},
	{"output: exact, live, limited, complete in a file", `output/.*`, nil},
	{"time limits end all processes of a command, daemons too", `kill/.*`, nil},
	{"nothing of the host is visible to commands", `exec/nothing-of-the-host|life/alone`, nil},
	{"commands as other users", `exec/users`, func(c Claims) bool { return c.Users }},
	{"absolute paths of commands and of files that go in or come out are the sandbox's",
		`exec/directory|files/.*`, nil},
	{"editing and searching files, with the rights of the agent's user",
		`fileop/(edit|users|search|together|end)`, nil},
	{"persistent shells", `shell/(steps|many|leave|users)`, nil},
	{"terminals for people (`evalrun shell`)", `terminal/.*`, nil},
	{"a copy of a running sandbox (`evalrun shell --look`)", `ability/copy`, nil},
	{"no network", `ability/no-network`, nil},
	{"connections to ports inside, and from inside to ports of ours", `ability/(dial|listen)`, nil},
	{"use of processor time and memory, of each command", `exec/usage`, nil},
	{"memory limit", `limits/memory`, func(c Claims) bool { return c.Memory }},
	{"disk limit", `limits/disk`, nil},
	{"limit of processes", `limits/pids`, nil},
	{"many at once; what a dead evalrun has left is removed", `life/(many|reap|close|gone|create-canceled)`, nil},
	{"found again by another evalrun", `life/find`, nil},
	{"services, ENTRYPOINT, health checks, volumes", `entrypoint/.*|services/.*|volumes/.*`, nil},
}

// What a test of the suite has shown.
type shown struct {
	skipped string // why
	passed  bool
}

// table compares the driver's column of a table in a Markdown file with what the suite has shown, or
// with EVALRUN_TEST_UPDATE=1 writes it. Rows of which a test was left out by -run, or has failed, are
// not compared; neither are those of what only this machine cannot do.
func table(t *testing.T, s Suite, results map[string]shown) {
	text, err := os.ReadFile(s.Table)
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("the test does not run in its source")
	}
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	at := slices.IndexFunc(lines, func(s string) bool { return strings.HasPrefix(s, "| what | ") })
	if at < 0 || len(lines) < at+2+len(abilities) {
		t.Fatalf("%s has no table of %d rows", s.Table, len(abilities))
	}
	col := slices.Index(cells(lines[at]), "`"+s.Column+"`")
	if col < 0 {
		t.Fatalf("%s: its table has no column `%s`", s.Table, s.Column)
	}
	update := os.Getenv("EVALRUN_TEST_UPDATE") != ""
	for i, a := range abilities {
		row := &lines[at+2+i]
		is := cells(*row)
		if len(is) <= col || is[0] != a.what {
			t.Fatalf("%s: row %d of the table is not %q", s.Table, i+1, a.what)
		}
		cell, ok := cellOf(a.tests, results)
		if !ok || cell == is[col] || a.machine != nil && !a.machine(s.Claims) {
			continue
		}
		if update {
			is[col] = cell
			*row = "| " + strings.Join(is, " | ") + " |"
			continue
		}
		t.Errorf("%s says of %s, %s: %q, and the suite has shown %q; EVALRUN_TEST_UPDATE=1 changes the file", s.Table,
			s.Column, a.what, is[col], cell)
	}
	if update {
		if err := os.WriteFile(s.Table, []byte(strings.Join(lines, "\n")), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// cells returns the cells of a row.
func cells(row string) []string {
	return strings.Split(strings.TrimSuffix(strings.TrimPrefix(row, "| "), " |"), " | ")
}

// cellOf returns what is said of an ability; ok is false if not all of its tests have run.
func cellOf(pattern string, results map[string]shown) (cell string, ok bool) {
	re := regexp.MustCompile("^(" + pattern + ")$")
	passed := 0
	var why []string
	for _, tt := range tests() {
		if !re.MatchString(tt.name) {
			continue
		}
		r, ran := results[tt.name]
		switch {
		case !ran || !r.passed && r.skipped == "":
			return "", false
		case r.passed:
			passed++
		case !slices.Contains(why, r.skipped):
			why = append(why, r.skipped)
		}
	}
	unclaimed := slices.Index(why, notClaimed)
	switch {
	case unclaimed >= 0 && passed == 0:
		return "no", true
	case unclaimed >= 0:
		why = slices.Delete(why, unclaimed, unclaimed+1)
	}
	switch {
	case len(why) == 0:
		return "yes", true
	case passed == 0:
		return "no: " + strings.Join(why, "; "), true
	}
	return "in part: " + strings.Join(why, "; "), true
}

const notClaimed = "the driver does not claim this"
