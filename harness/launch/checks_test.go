package launch

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// What one check writes, another run reads; several checks fill one file, also at the same time.
func TestChecks(t *testing.T) {
	name := filepath.Join(t.TempDir(), "checks.json")
	get := func(c *Checks, key, made string) string {
		t.Helper()
		refs := &references{dir: t.TempDir(), checks: c} // another machine's cache
		b, err := refs.Get(t.Context(), key, func(context.Context) ([]byte, error) { return []byte(made), nil })
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	if _, err := OpenChecks(name, false); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a run without its file: %v", err)
	}
	var all sync.WaitGroup
	for _, key := range []string{"a", "b", "c", "d"} {
		c, err := OpenChecks(name, true)
		if err != nil {
			t.Fatal(err)
		}
		get(c, key, `{"of":"`+key+`"}`)
		all.Go(func() {
			if err := c.Save(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	c, err := OpenChecks(name, false)
	if err != nil {
		t.Fatal(err)
	}
	if got := c.origin(); got != "" {
		t.Errorf("before a reference is used: %s", got)
	}
	for _, key := range []string{"a", "b", "c", "d"} {
		if got := get(c, key, `{"of":"nobody"}`); got != `{"of":"`+key+`"}` {
			t.Errorf("%s: %s", key, got)
		}
	}
	refs := &references{dir: t.TempDir(), checks: c}
	for _, key := range []string{"a", "nobody's"} {
		if _, err := refs.Get(t.Context(), key, nil); err != nil {
			t.Error(err)
		}
	}
	if got := c.missing(); got != name+" knows 1 of 2 tasks: a reference is of a task's content and of its images" {
		t.Errorf("%s", got)
	}
	if got := get(c, "e", `{"of":"e"}`); got != `{"of":"e"}` {
		t.Errorf("a reference that the file lacks: %s", got)
	}
	if got := c.origin(); !strings.Contains(got, name) {
		t.Errorf("an error does not name the file: %q", got)
	}
	// A check makes its own references and takes none of the file.
	if c, err = OpenChecks(name, true); err != nil {
		t.Fatal(err)
	}
	if got := get(c, "a", `{"of":"anew"}`); got != `{"of":"anew"}` {
		t.Errorf("the check used what others wrote: %s", got)
	}
}

// A damaged or foreign file is refused by name and place, and stays as it is.
func TestBadChecks(t *testing.T) {
	digest := strings.Repeat("0a", 16)
	for _, c := range []struct{ text, want string }{
		{"", "damaged"}, {"{\n\"evalrun_checks\": 1,\n]", "line 3, byte"}, {"[]", "no file of checks"},
		{`{"name": "x"}`, "it has no evalrun_checks"}, {`{"evalrun_checks": 2, "new": 1}`, "has version 2"},
		{`{"evalrun_checks": 1, "other": {}}`, `unknown field "other"`},
		{`{"evalrun_checks": 1, "references": {"../../x": {}}}`, `"../../x", which is no digest`},
		{`{"evalrun_checks": 1, "references": {"` + digest + `": []}}`, "reference " + digest + " is no object"},
		{`{"evalrun_checks": 1, "references": {"` + digest + `": {"a": "` + strings.Repeat("x", maxReference) + `"}}}`,
			"more than 64 MiB"},
	} {
		name := filepath.Join(t.TempDir(), "checks.json")
		if err := os.WriteFile(name, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, write := range []bool{false, true} {
			_, err := OpenChecks(name, write)
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), name) {
				t.Errorf("%.80s: %v", c.text, err)
			}
		}
		if b, _ := os.ReadFile(name); string(b) != c.text {
			t.Errorf("%.80s was changed", c.text)
		}
	}
}
