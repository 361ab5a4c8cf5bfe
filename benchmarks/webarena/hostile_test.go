package webarena

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// What is no file of tasks is said, and not waited for.
func TestFilesThatAreNone(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "test_pipe.raw.json")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	huge := file("huge.json", "[")
	if err := os.Truncate(huge, 1<<40); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		pipe: "not a regular file", dir: "not a regular file", "/dev/zero": "not a regular file",
		huge:                                   "more than a file of tasks may have",
		file("nan.json", `[{"task_id": NaN}]`): "invalid character 'N'",
		file("deep.json", strings.Repeat("[", 1<<20)):                                        "exceeded max depth",
		file("object.json", `{"task_id": 1}`):                                                "an array of configurations was expected",
		file("cut.json", `[{"task_id": 1}, {"task`):                                          "unexpected end",
		filepath.Join(dir, "gone.json"):                                                      "no such file",
		file("link.json", "") + "/below":                                                     "not a directory",
		func() string { p := filepath.Join(dir, "loop.json"); os.Symlink(p, p); return p }(): "too many levels",
	} {
		done := make(chan error, 1)
		go func() { _, err := Open(WebArena, path); done <- err }()
		select {
		case err := <-done:
			if err == nil || !strings.Contains(err.Error(), want) ||
				!strings.Contains(err.Error(), filepath.Base(path)) && path != dir {
				t.Errorf("%s: %v", path, err)
			}
		case <-time.After(20 * time.Second):
			t.Errorf("%s is waited for", path)
		}
	}
}

// A configuration that is wrong is a bad task, whatever is wrong with it, and the others are
// played.
func TestConfigurationsThatAreWrong(t *testing.T) {
	const rest = `,"sites":["shopping"],"intent":"do it","eval":{"eval_types":["url_match"]}}`
	for _, c := range []string{
		`null`, `17`, `"x"`, `[]`, `{}`, `{"task_id":"1"` + rest, `{"task_id":1.5` + rest, `{"task_id":1e999` + rest,
		`{"task_id":1,"start_url":17` + rest,
		`{"task_id":1,"start_url":"file:///etc/passwd"` + rest, `{"task_id":1,"start_url":"javascript:alert(1)"` + rest,
		`{"task_id":1,"start_url":"data:text/html,x"` + rest,
		`{"task_id":1,"start_url":"__SHOPPING__ |AND| chrome://version"` + rest,
		`{"task_id":1,"start_url":"http://0x7f.1/"` + rest, `{"task_id":1,"start_url":"http://"` + rest,
		`{"task_id":1,"sites":{"a":1},"eval":{"eval_types":["url_match"]}}`,
		`{"task_id":1,"sites":["shopping"],"eval":[]}`, `{"task_id":1,"eval":{"eval_types":"url_match"}}`,
		`{"task_id":1,"eval":{"eval_types":["string_match"],"reference_answers":{"exact_match":{"a":1}}}}`,
		`{"task_id":1,"eval":{"eval_types":["\u0000"]}}`,
	} {
		src, err := Read(WebArena, "file.json", []byte("["+c+`,{"task_id":2,"start_url":"__SHOPPING__"`+rest+"]"))
		if err != nil {
			t.Errorf("%s: %v", c, err)
			continue
		}
		good, bad := 0, 0
		for _, err := range src.Tasks(t.Context()) {
			if err == nil {
				good++
			} else if bad++; !strings.Contains(err.Error(), "file.json[0]") {
				t.Errorf("%s: %v", c, err)
			}
		}
		if good != 1 || bad != 1 {
			t.Errorf("%s: %d good ones and %d bad ones", c, good, bad)
		}
	}
}
