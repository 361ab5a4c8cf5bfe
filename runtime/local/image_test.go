package local

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

// unpacked makes a root with a shell in it.
func unpacked(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	os.Chmod(root, 0o755)
	out, err := exec.Command("ldd", "/bin/sh").Output()
	if err != nil {
		t.Skip("no ldd: ", err)
	}
	files := append(regexp.MustCompile(`/\S+`).FindAllString(string(out), -1), "/bin/sh")
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		dst := filepath.Join(root, f)
		os.MkdirAll(filepath.Dir(dst), 0o755)
		if err := os.WriteFile(dst, b, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	os.MkdirAll(filepath.Join(root, "etc"), 0o755)
	os.WriteFile(filepath.Join(root, "etc/passwd"),
		[]byte("root:x:0:0::/root:/bin/sh\napp:x:1234:1234::/app:/bin/sh\n"), 0o644)
	os.WriteFile(filepath.Join(root, "etc/marker"), []byte("from the image\n"), 0o600)
	return root
}

func TestImage(t *testing.T) {
	d := require(t)
	root := unpacked(t)
	spec := sandbox.Spec{Image: sandbox.Image{Ref: "dir:" + root}}
	one, two := create(t, d, spec), create(t, d, spec)
	out, x := sh(t, one, `
		read line </etc/marker && echo "$line"
		echo changed >/etc/marker && read line </etc/marker && echo "$line"
		echo new >/new
		[ -d /usr/share ] && echo host
		while read line; do echo "$line"; done </proc/self/mountinfo
		while read line; do echo "$line"; done </etc/hosts`)
	if x.Code != 0 || !strings.HasPrefix(out, "from the image\nchanged\n") || strings.Contains(out, "\nhost\n") {
		t.Errorf("%+v\n%s", x, out)
	}
	if !strings.Contains(out, "localhost") {
		t.Error("no hosts file of ours")
	}
	if p := filepath.Base(filepath.Dir(root)); strings.Contains(out, p) {
		t.Errorf("the image's place on the host is seen inside:\n%s", out)
	}
	if out, _ := sh(t, two, `read line </etc/marker; echo "$line"; [ -e /new ] && echo new`); out != "from the image\n" {
		t.Errorf("the other sandbox sees %q", out)
	}
	if b, _ := os.ReadFile(filepath.Join(root, "etc/marker")); string(b) != "from the image\n" {
		t.Errorf("the image itself was changed: %q", b)
	}
	if _, err := os.Stat(filepath.Join(root, "new")); err == nil {
		t.Error("the image itself has a new file")
	}
	if manyUsers() {
		x, err := one.Exec(context.Background(),
			sandbox.Command{Args: []string{"sh", "-c", "[ -r /etc/marker ]"}, User: "app"})
		if err != nil || x.Code != 1 {
			t.Errorf("a user of the image reads what is root's: %+v, %v", x, err)
		}
	}
	for _, ref := range []string{"dir:/no/such", "busybox:latest"} {
		if sb, err := d.Create(context.Background(), sandbox.Spec{Image: sandbox.Image{Ref: ref}}); err == nil {
			sb.Close()
			t.Errorf("image %s: no error", ref)
		}
	}
	var u *sandbox.Unsupported
	if _, err := d.Prepare(context.Background(), sandbox.Image{Ref: "busybox:latest"}); !errors.As(err, &u) {
		t.Errorf("Prepare of a Docker image: %v", err)
	}
}
