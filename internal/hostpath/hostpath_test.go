package hostpath

import (
	"strings"
	"testing"
)

const root = Root("/tmp/evalrun-none-x")

var folders = []string{"/mnt/user-data", "/workspace"}

func TestHost(t *testing.T) {
	for _, c := range []struct{ path, want string }{
		{"/", "/tmp/evalrun-none-x"},
		{"/a/b", "/tmp/evalrun-none-x/a/b"},
		{"/a/../../b", "/tmp/evalrun-none-x/b"},
		{"/tmp/evalrun-none-x/a", "/tmp/evalrun-none-x/a"},
		{"/tmp/evalrun-none-x", "/tmp/evalrun-none-x"},
		{"/tmp/evalrun-none-xy/a", "/tmp/evalrun-none-x/tmp/evalrun-none-xy/a"},
		{"/tmp/evalrun-none-x/../a", "/tmp/evalrun-none-x/tmp/a"},
	} {
		if got := root.Host(c.path); got != c.want {
			t.Errorf("%s: %s, want %s", c.path, got, c.want)
		}
	}
	if got := Root("").Host("/a/"); got != "/a" {
		t.Error(got)
	}
}

// The vectors are those of DeerFlow's rules of boundaries. R stands for the root.
func TestBoundaries(t *testing.T) {
	for _, c := range []struct{ text, command, content string }{
		{"/mnt/user-data", "R/mnt/user-data", "R/mnt/user-data"},
		{"/mnt/user-data/workspace/x", "R/mnt/user-data/workspace/x", "R/mnt/user-data/workspace/x"},
		{"/mnt/user-data-backup/x", "", ""},
		{"/mnt/user-data.old", "", ""},
		{"/mnt/user-data_2", "", ""},
		{"/mnt/user-dataä", "", ""},
		{"cat '/mnt/user-data' \"/mnt/user-data\"", "cat 'R/mnt/user-data' \"R/mnt/user-data\"",
			"cat 'R/mnt/user-data' \"R/mnt/user-data\""},
		{"cd /mnt/user-data;ls>/mnt/user-data|(/mnt/user-data)", "cd R/mnt/user-data;ls>R/mnt/user-data|(R/mnt/user-data)",
			"cd R/mnt/user-data;ls>R/mnt/user-data|(R/mnt/user-data)"},
		{"/mnt/user-data,x", "", "R/mnt/user-data,x"},
		{"/mnt/user-data: x", "", "R/mnt/user-data: x"},
		{"/mnt/user-data\n/mnt/user-data\t", "R/mnt/user-data\nR/mnt/user-data\t", "R/mnt/user-data\nR/mnt/user-data\t"},
		{"--to=/mnt/user-data/x PATH=/a:/workspace", "--to=R/mnt/user-data/x PATH=/a:R/workspace",
			"--to=R/mnt/user-data/x PATH=/a:R/workspace"},
		{"src/workspace ./workspace ../workspace ~/workspace", "", ""},
		{"$HOME/workspace ${A}/workspace $(pwd)/workspace", "", ""},
		{"http://a.example/workspace //workspace http://a:80/workspace", "", ""},
		{"/a/*/workspace s/\\/workspace/x/", "", ""},
		{"/workspaces /mnt/user-dat /work", "", ""},
	} {
		for _, f := range []struct {
			what string
			do   func(string, ...string) string
			want string
		}{{"command", root.Command, c.command}, {"content", root.Content, c.content}} {
			want := c.text
			if f.want != "" {
				want = strings.ReplaceAll(f.want, "R", string(root))
			}
			got := f.do(c.text, folders...)
			if got != want {
				t.Errorf("%s %q: %q, want %q", f.what, c.text, got, want)
			}
			if back := root.Mask(got); back != c.text {
				t.Errorf("%s %q: back again it is %q", f.what, c.text, back)
			}
		}
	}
}

func TestMask(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"R", "/"}, {"R/", "/"}, {"R\n", "/\n"}, {"R/a R/b", "/a /b"}, {"'R'", "'/'"}, {"R:R/bin", "/:/bin"},
		{"Ry", "Ry"}, {"R-2/a", "R-2/a"}, {"R.old", "R.old"}, {"RR/a", "/a"},
		{`File "R/workspace/a.py", line 1`, `File "/workspace/a.py", line 1`},
		{"/tmp/evalrun-none-", "/tmp/evalrun-none-"},
	} {
		in, want := strings.ReplaceAll(c.text, "R", string(root)), strings.ReplaceAll(c.want, "R", string(root))
		if got := root.Mask(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
	if got := Root("").Mask("/a"); got != "/a" {
		t.Error(got)
	}
}

func FuzzPaths(f *testing.F) {
	for _, s := range []string{"cat /mnt/user-data/x", "/workspace-2", "R/workspace", "a/../workspace", "ä/workspace\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if got := root.Host("/" + text); !Below(got, string(root)) {
			t.Errorf("%q leads to %q", text, got)
		}
		masked := root.Mask(text)
		if strings.Contains(masked+"\n", string(root)+"\n") && !strings.Contains(text, string(root)+string(root)) &&
			!strings.Contains(text, "/tmp"+string(root)) {
			t.Errorf("%q shows the root: %q", text, masked)
		}
		if strings.Contains(text, string(root)) {
			return
		}
		if masked != text {
			t.Errorf("%q became %q", text, masked)
		}
		for _, do := range []func(string, ...string) string{root.Command, root.Content} {
			mapped := do(text, folders...)
			if back := root.Mask(mapped); back != text {
				t.Errorf("%q became %q and that %q", text, mapped, back)
			}
			if again := do(mapped, folders...); again != mapped {
				t.Errorf("%q is mapped twice: %q", mapped, again)
			}
		}
	})
}
