package tasks_test

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/benchmarks/benchtest"
	"github.com/evalrun/evalrun/benchmarks/tasks"
)

var block = regexp.MustCompile("(?s)<!-- (file|errors): (\\S+) -->\n```\\w+\n(.*?)```\n")

// Every example of docs/own-benchmark.md and docs/browser.md is what it says: the oracle scores
// full, an agent that does nothing does not.
func TestDocs(t *testing.T) {
	var page []byte
	for _, name := range []string{"own-benchmark.md", "browser.md"} {
		b, err := os.ReadFile("../../docs/" + name)
		if err != nil {
			t.Fatal(err)
		}
		page = append(page, b...)
	}
	t.Chdir(t.TempDir())
	d := benchtest.Local(t)
	var suites []string
	errs := map[string]string{}
	for _, m := range block.FindAllStringSubmatch(string(page), -1) {
		if m[1] == "errors" {
			errs[m[2]] = strings.TrimSpace(m[3])
			continue
		}
		if err := os.MkdirAll(filepath.Dir(m[2]), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(m[2], []byte(m[3]), 0o644); err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(filepath.Base(m[2]), "tasks.") {
			suites = append(suites, filepath.Dir(m[2]))
		}
	}
	if len(suites) < 12 {
		t.Fatalf("the page has examples %q", suites)
	}
	for _, dir := range suites {
		t.Run(dir, func(t *testing.T) {
			b, err := tasks.New(dir, nil)
			if err != nil {
				t.Fatal(err)
			}
			want, wrong := errs[dir]
			if !wrong {
				if inBrowser(t, b) {
					b = b.In(realBrowsers(t))
				}
				benchtest.Run(t, benchtest.Suite{Benchmark: b, Driver: d})
				return
			}
			var have []string
			for _, err := range b.Source().Tasks(t.Context()) {
				if err != nil {
					have = append(have, err.Error())
				}
			}
			if got := strings.Join(have, "\n"); got != want {
				t.Errorf("the page says\n%s\nand it is\n%s", want, got)
			}
		})
	}
}

// inBrowser reports whether a benchmark's first task wants a browser.
func inBrowser(t *testing.T, b *tasks.Benchmark) bool {
	for task, err := range b.Source().Tasks(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		n, err := b.Needs(task, benchmarks.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return n.Browser
	}
	return false
}

// The page names every key.
func TestDocsKeys(t *testing.T) {
	page, err := os.ReadFile("../../docs/own-benchmark.md")
	if err != nil {
		t.Fatal(err)
	}
	keys := regexp.MustCompile(`\w+`)
	named := map[string]bool{}
	for _, code := range regexp.MustCompile("`[^`]+`").FindAllString(
		regexp.MustCompile("(?s)```.*?```").ReplaceAllString(string(page), ""), -1) {
		for _, k := range keys.FindAllString(code, -1) {
			named[k] = true
		}
	}
	for _, typ := range []reflect.Type{
		reflect.TypeFor[tasks.File](), reflect.TypeFor[tasks.Task](), reflect.TypeFor[tasks.Stage](),
		reflect.TypeFor[tasks.Grade](),
		reflect.TypeFor[tasks.Function](), reflect.TypeFor[tasks.Oracle](), reflect.TypeFor[tasks.Item](),
		reflect.TypeFor[tasks.Limits](), reflect.TypeFor[tasks.Browser](),
	} {
		for f := range typ.Fields() {
			if k, _, _ := strings.Cut(f.Tag.Get("json"), ","); k != "" && !named[k] {
				t.Errorf("the key %s of %s is not on the page", k, typ)
			}
		}
	}
}
