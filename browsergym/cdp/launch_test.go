package cdp_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/browsergym/cdp"
)

func needBrowser(t testing.TB) {
	t.Helper()
	if os.Getenv("EVALRUN_TEST_BROWSER") == "" {
		t.Skip("set EVALRUN_TEST_BROWSER=1 for tests with a real browser")
	}
}

func TestLaunch(t *testing.T) {
	needBrowser(t)
	dir := t.TempDir()
	b, err := cdp.Launch(t.Context(), cdp.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.Product, "Chrome/") {
		t.Errorf("product %q", b.Product)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
	if _, err := b.Call(t.Context(), "", "Browser.getVersion", nil); !errors.Is(err, cdp.ErrClosed) {
		t.Errorf("a call after Close: %v", err)
	}
}

func TestLaunchOfWhatIsNone(t *testing.T) {
	for path, want := range map[string]string{"/nowhere/chromium": "no such file",
		"/bin/false": "gone: it ended as it began (exit status 1)", "/bin/cat": "(exit status 1): "} {
		dir := t.TempDir()
		_, err := cdp.Launch(t.Context(), cdp.Options{Path: path, Dir: dir})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", path, err)
		}
		if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) > 0 {
			t.Errorf("%s left behind: %q", path, left)
		}
	}
}
