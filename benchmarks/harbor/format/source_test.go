package format

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/datasets"
)

// writeTask writes a sound task below dir.
func writeTask(t testing.TB, dir, name, toml string, over map[string]string) string {
	t.Helper()
	p := filepath.Join(dir, filepath.FromSlash(name))
	for file, f := range taskFS(toml, over) {
		to := filepath.Join(p, filepath.FromSlash(file))
		if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, f.Data, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

func open1(t testing.TB, path, options string) datasets.Source {
	t.Helper()
	var o SourceOptions
	if options != "" {
		if err := json.Unmarshal([]byte(options), &o); err != nil {
			t.Fatal(err)
		}
	}
	_, source, err := Open(path, o)
	if err != nil {
		t.Fatal(err)
	}
	return source
}

// listing is a line a task: its name, or what is wrong.
func listing(t testing.TB, source datasets.Source) (out []string) {
	t.Helper()
	for task, err := range source.Tasks(t.Context()) {
		if err != nil {
			out = append(out, "! "+err.Error())
			continue
		}
		out = append(out, task.ID)
	}
	return out
}

func only(t testing.TB, source datasets.Source) *Task {
	t.Helper()
	for task, err := range source.Tasks(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		var d Task
		if err := json.Unmarshal(task.Data, &d); err != nil {
			t.Fatal(err)
		}
		return &d
	}
	return nil
}

func named(name string) string { return "[task]\nname = 'acme/" + name + "'\n" }

func TestFolderOfTasks(t *testing.T) {
	dir := t.TempDir()
	writeTask(t, dir, "b", named("bee"), nil)
	writeTask(t, dir, "a", "# x", nil)
	writeTask(t, dir, "group/c", "# c", nil)
	writeTask(t, dir, "twice", named("bee")+"#", nil)
	writeTask(t, dir, "same", "# x", nil)
	writeTask(t, dir, "broken", "x = ", nil)
	writeTask(t, dir, "looks", "", nil)
	writeTask(t, dir, ".hidden", "# h", nil)
	os.MkdirAll(filepath.Join(dir, "docs", "deep"), 0o755)
	os.MkdirAll(filepath.Join(dir, "v1"), 0o755)
	os.WriteFile(filepath.Join(dir, "v1", "task.yaml"), []byte("x"), 0o644)
	b := open1(t, dir, "")
	got := strings.ReplaceAll(strings.Join(listing(t, b), "\n"), dir+"/", "")
	want := `a
acme/bee
! broken: task "broken": task.toml:1:4: `
	has(t, got, want, `group/c`[6:], `! looks: task "looks": it looks like a task, and has no task.toml`,
		`! same: task "same": it is the same as a, file by file`,
		"! twice: task \"twice\": it has the name of ",
		`! v1: task "v1": a Terminal-Bench v1 task (task.yaml); run it as terminalbench:PATH`)
	if strings.Contains(got, "docs") || strings.Contains(got, "hidden") || strings.Count(got, "\n") != 7 {
		t.Error(got)
	}
	if name, _, _ := Open(dir, SourceOptions{}); name != filepath.Base(dir) {
		t.Errorf("name %q", name)
	}
	for _, id := range []string{"a", "c", "acme/bee"} {
		if task, err := open1(t, dir, "").Task(t.Context(), id); err != nil || task.ID != id {
			t.Errorf("%s: %v %v", id, task.ID, err)
		}
	}
	if _, err := b.Task(t.Context(), "no"); !errors.Is(err, datasets.ErrNoTask) {
		t.Error(err)
	}
	if got := listing(t, open1(t, filepath.Join(dir, "b"), "")); !cmp.Equal(got, []string{"acme/bee"}) {
		t.Errorf("one task's folder: %v", got)
	}
	if got := listing(t, open1(t, filepath.Join(dir, "b", "task.toml"), "")); !cmp.Equal(got, []string{"acme/bee"}) {
		t.Errorf("a task.toml: %v", got)
	}
	has(t, strings.Join(listing(t, open1(t, filepath.Join(dir, "docs"), "")), ""), "there is no task in it")
	if _, _, err := Open(filepath.Join(dir, "none"), SourceOptions{}); err == nil {
		t.Error("a folder that is not there")
	}
}

func TestFilters(t *testing.T) {
	dir := t.TempDir()
	for _, n := range []string{"a1", "a2", "b1", "b2"} {
		writeTask(t, dir, n, named(n), nil)
	}
	for options, want := range map[string]string{
		`{"Include": ["a?"]}`:                   "acme/a1 acme/a2",
		`{"Include": ["acme/*1"]}`:              "acme/a1 acme/b1",
		`{"Include": ["*[!2]"], "Limit": 1}`:    "acme/a1",
		`{"Exclude": ["a?"]}`:                   "acme/b1 acme/b2",
		`{"Include": ["*"], "Exclude": ["b2"]}`: "acme/a1 acme/a2 acme/b1",
		`{"Limit": 3}`:                          "acme/a1 acme/a2 acme/b1",
	} {
		if got := strings.Join(listing(t, open1(t, dir, options)), " "); got != want {
			t.Errorf("%s: %s", options, got)
		}
	}
	has(t, strings.Join(listing(t, open1(t, dir, `{"Include": ["x"]}`)), ""),
		"there is no task in it, or none that task_names")
}

// Links that lead out of a task's folder are refused, also into a neighbour; links within it are
// files.
func TestLinks(t *testing.T) {
	dir := t.TempDir()
	secret := filepath.Join(t.TempDir(), "secret")
	os.WriteFile(secret, []byte("s"), 0o600)
	writeTask(t, dir, "other", "# o", nil)
	for name, to := range map[string]string{"abs": secret, "rel": "../../other/instruction.md", "loop": "loop",
		"gone": "nowhere", "in": "Dockerfile"} {
		os.Symlink(to, filepath.Join(writeTask(t, dir, name, "# "+name, nil), "environment", name))
	}
	got := strings.Join(listing(t, open1(t, dir, "")), "\n")
	has(t, got, `task "abs": the link environment/abs leads out of the task's folder`,
		`task "rel": the link environment/rel leads out`,
		`task "loop": the link environment/loop leads out of the task's folder, or in a circle`)
	if lines := strings.Split(got, "\n"); len(lines) != 6 || !strings.Contains("\n"+got+"\n", "\ngone\n") ||
		!strings.Contains("\n"+got+"\n", "\nin\n") {
		t.Error(got)
	}
	task := writeTask(t, dir, "instr", "# i", map[string]string{"instruction.md": ""})
	os.Symlink(secret, filepath.Join(task, "instruction.md"))
	if got := strings.Join(listing(t, open1(t, task, "")), "\n"); !strings.Contains(got, "! ") ||
		strings.Contains(got, "is missing") {
		t.Error(got)
	}
}

func TestDatasetTOML(t *testing.T) {
	dir := t.TempDir()
	writeTask(t, dir, "a", named("a"), nil)
	writeTask(t, dir, "other/bee", named("b"), nil)
	writeTask(t, dir, "c", named("c"), nil)
	digest := func(name string) string {
		task, err := open1(t, filepath.Join(dir, name), "").Task(t.Context(), "acme/"+short(name)[:1])
		if err != nil {
			t.Fatal(err)
		}
		return task.Digest
	}
	write := func(text string) {
		os.WriteFile(filepath.Join(dir, "dataset.toml"),
			[]byte("[dataset]\nname = 'acme/all'\nversion = '1'\ndescription='d'\nauthors=[]\nkeywords=[]\n"+text),
			0o644)
	}
	zero := "sha256:" + strings.Repeat("0", 64)
	write(fmt.Sprintf("[[tasks]]\nname='acme/b'\ndigest=%q\n[[tasks]]\nname='acme/a'\ndigest=%q\n[[tasks]]\nname='acme/c'\ndigest=%q\n[[tasks]]\nname='acme/d'\n", digest("other/bee"), digest("a"), zero))
	for _, path := range []string{dir, filepath.Join(dir, "dataset.toml")} {
		got := listing(t, open1(t, path, ""))
		if len(got) != 4 || got[0] != "acme/b" || got[1] != "acme/a" {
			t.Fatal(got)
		}
		has(t, got[2], `task "acme/c": its content has the digest sha256:`, "dataset.toml wants "+zero)
		has(t, got[3], `task "acme/d": no folder below `)
	}
	if task, err := open1(t, dir, "").Task(t.Context(), "acme/b"); err != nil || task.ID != "acme/b" {
		t.Error(err)
	}
	for text, want := range map[string]string{
		"[[tasks]]\nname='x'\n":                                   "want organisation/name",
		"[[tasks]]\nname='a/b'\ndigest='md5:1'\n":                 "want sha256:",
		"[[tasks]]\nname='a/b'\n[[tasks]]\nname='a/b'\n":          "stands here twice",
		"[[files]]\npath='../x'\n":                                "want the name of a file",
		"[[files]]\npath='dataset.toml'\ndigest='" + zero + "'\n": "has another content than its digest says",
	} {
		write(text)
		got := strings.Join(listing(t, open1(t, dir, "")), "\n")
		has(t, got, want, "dataset.toml:")
	}
}

func TestRegistry(t *testing.T) {
	dir := t.TempDir()
	writeTask(t, dir, "tasks/a", "# a", nil)
	writeTask(t, dir, "tasks/b", named("b"), nil)
	write := func(text string) string {
		p := filepath.Join(dir, "registry.json")
		os.WriteFile(p, []byte(text), 0o644)
		return p
	}
	p := write(`[{"name": "d", "version": "1.0", "description": "x", "metrics": [{"type": "mean"}], "tasks": [{"name": "first", "path": "tasks/a"}, {"path": "tasks/b"}, {"path": "../x"}, {"path": "tasks/no"},
		{"path": "tasks/a"}, {"path": "t", "git_url": "https://example.org/x.git", "git_commit_id": "HEAD"}, {"path": "t2", "git_url": "--upload-pack=x", "git_commit_id": "HEAD"},
		{"path": "t3", "git_url": "https://example.org/x.git", "git_commit_id": "` + strings.Repeat("a", 40) + `"}]}]`)
	got := listing(t, open1(t, p, `{"cache": "`+t.TempDir()+`"}`))
	if len(got) != 8 || got[0] != "first" || got[1] != "acme/b" {
		t.Fatal(strings.Join(got, "\n"))
	}
	for i, want := range []string{"leads out of its repository", "no such folder below", "stands in the registry twice",
		"only fetched at a full commit id", "is no address that tasks are fetched from",
		"which is not fetched; set the option fetch: true, or root"} {
		has(t, got[i+2], want)
	}
	p = write(`[{"name": "d", "version": "1", "tasks": [{"path": "tasks/a"}]}, {"name": "d", "version": "2", "tasks": [{"path": "tasks/b"}]}]`)
	has(t, strings.Join(listing(t, open1(t, p, "")), ""),
		"which dataset? add dataset: NAME@VERSION to the options; the registry has d@1, d@2")
	has(t, strings.Join(listing(t, open1(t, p, `{"dataset": "e"}`)), ""),
		`the registry has no dataset "e"; it has d@1, d@2`)
	if got := listing(t, open1(t, p, `{"dataset": "d@2"}`)); !cmp.Equal(got, []string{"acme/b"}) {
		t.Error(got)
	}
	// Another folder may hold the paths.
	other := t.TempDir()
	writeTask(t, other, "tasks/a", named("elsewhere"), nil)
	if got := listing(t, open1(t, p, `{"dataset": "d@1", "root": "`+other+`"}`)); !cmp.Equal(got,
		[]string{"acme/elsewhere"}) {
		t.Error(got)
	}
	has(t, strings.Join(listing(t, open1(t, write(`{"a": 1}`), "")), ""), "want a list of datasets")
}

// A repository is fetched at its commit, once, and not believed when its folder was changed.
func TestFetch(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not there")
	}
	repo := t.TempDir()
	writeTask(t, repo, "tasks/a", named("a"), nil)
	os.WriteFile(filepath.Join(repo, ".gitignore"), []byte("*.log\n"), 0o644)
	run := func(args ...string) string {
		t.Helper()
		out, err := git(t.Context(), repo, append([]string{"-c", "user.name=a", "-c", "user.email=a@b"}, args...)...)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(out)
	}
	run("init", "-q")
	run("config", "uploadpack.allowAnySHA1InWant", "true")
	run("add", ".")
	run("commit", "-q", "-m", "one")
	commit := run("rev-parse", "HEAD")
	writeTask(t, repo, "tasks/a", named("changed"), nil)
	run("commit", "-q", "-am", "two")

	cache := t.TempDir()
	registry := filepath.Join(t.TempDir(), "registry.json")
	os.WriteFile(registry, []byte(fmt.Sprintf(
		`[{"name": "d", "tasks": [{"path": "tasks/a", "git_url": "file://%s", "git_commit_id": %q}]}]`, repo, commit)),
		0o644)
	has(t, strings.Join(listing(t, open1(t, registry, `{"cache": "`+cache+`"}`)), ""), "which is not fetched")
	forget := func() { fetched.Lock(); clear(fetched.m); fetched.Unlock() }
	for range 2 { // the second time from the cache
		forget()
		if got := listing(t, open1(t, registry, `{"fetch": true, "cache": "`+cache+`"}`)); !cmp.Equal(got,
			[]string{"acme/a"}) {
			t.Fatal(got)
		}
		run("config", "uploadpack.allowAnySHA1InWant", "false")
	}
	found, _ := filepath.Glob(filepath.Join(cache, "*", "*"))
	if len(found) != 1 {
		t.Fatal(found)
	}
	os.WriteFile(filepath.Join(found[0], "tasks", "a", "tests", "x.log"), []byte("planted"), 0o644)
	forget()
	has(t, strings.Join(listing(t, open1(t, registry, `{"fetch": true, "cache": "`+cache+`"}`)), ""),
		"does not hold commit")
	has(t, (repository{"https://x.org/a b", commit}).check().Error(), "is no address")
}

func TestCanceled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	dir := writeTask(t, t.TempDir(), "a", "# x", nil)
	for _, err := range open1(t, dir, "").Tasks(ctx) {
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
}

// One task of a thousand costs one task's work.
func BenchmarkTask(b *testing.B) {
	dir := b.TempDir()
	for i := range 1000 {
		writeTask(b, dir, fmt.Sprintf("t%04d", i), named(fmt.Sprintf("t%04d", i)), nil)
	}
	for b.Loop() {
		if _, err := open1(b, dir, "").Task(b.Context(), "acme/t0700"); err != nil {
			b.Fatal(err)
		}
	}
}
