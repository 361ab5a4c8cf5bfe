package format

import (
	"bytes"
	"io"
	"io/fs"
	"path"
	"slices"

	"github.com/evalrun/evalrun/benchmarks/filetree"
)

// maxScript is how large a script may be whose line ends are looked at.
const maxScript = 4 << 20

// Scripts returns the files of a task's folders as they are put into a machine, later folders over
// earlier. Shell scripts get an executable mode, and Unix line ends if their "#!" line has
// Windows'.
func Scripts(files fs.FS, dirs ...string) (*filetree.Tree, error) {
	t := filetree.New()
	for _, d := range dirs {
		if err := t.Overlay(files, d); err != nil {
			return nil, err
		}
	}
	for name, n := range t.All() {
		if !n.Mode.IsRegular() || path.Ext(name) != ".sh" {
			continue
		}
		n.Mode |= 0o111
		text, err := read(n)
		if err != nil {
			return nil, err
		}
		if first, _, _ := bytes.Cut(text, []byte("\n")); bytes.HasPrefix(first, []byte("#!")) &&
			bytes.HasSuffix(first, []byte("\r")) {
			t.Text(name, bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n")), n.Mode)
		}
	}
	return t, nil
}

// read is a small file's content; of a large one the beginning.
func read(n *filetree.Node) ([]byte, error) {
	r, err := n.Open()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(io.LimitReader(r, maxScript))
}

// Script is the path of the test.sh that runs on the agent's machine: a step's own before the
// task's; "" if there is none.
func (v *Verifier) Script(files fs.FS) string {
	for _, d := range slices.Backward(v.Tests) {
		name := path.Join(d, "test.sh")
		if info, err := fs.Stat(files, name); err == nil && info.Mode().IsRegular() {
			return name
		}
	}
	return ""
}

// ScriptCommand is the command that runs a script of a task at a path in the machine: by its "#!"
// line, else by bash.
func ScriptCommand(files fs.FS, name, at string) ([]string, error) {
	f, err := files.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	head := make([]byte, 2)
	if _, err := io.ReadFull(f, head); err == nil && string(head) == "#!" {
		return []string{at}, nil
	}
	return []string{"bash", at}, nil
}
