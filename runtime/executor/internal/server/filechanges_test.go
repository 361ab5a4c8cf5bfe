package server

import (
	"testing"

	"github.com/evalrun/evalrun/internal/execproto"
)

// A list of packages that is empty enters none of them, also after its way over the wire; what is
// not Python's is entered whole.
func TestNoPackages(t *testing.T) {
	for name, tt := range map[string]struct {
		w         execproto.Watch
		pkg, test bool // are entered
	}{
		"not Python's": {execproto.Watch{Path: "/none", Depth: -1}, true, true},
		"none":         {execproto.Watch{Path: "/none", Depth: -1, Python: true}, false, false},
		"empty":        {execproto.Watch{Path: "/none", Depth: -1, Python: true, Packages: []string{}}, false, false},
		"another": {execproto.Watch{Path: "/none", Depth: -1, Python: true, Packages: []string{"pytest"}}, false,
			false},
		"named": {execproto.Watch{Path: "/none", Depth: -1, Python: true, Packages: []string{"numpy"}}, true,
			false},
		"ignored": {execproto.Watch{Path: "/none", Depth: -1, Packages: []string{"pytest"}}, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, ws, err := execproto.DecodeWatches(execproto.EncodeWatches("set", false, []execproto.Watch{tt.w}))
			if err != nil || len(ws) != 1 {
				t.Fatal(ws, err)
			}
			l := &fileVisitor{sv: &server{}, left: 10, known: func(string) bool { return false }}
			l.watch(ws[0])
			const lib = "/none/python3/site-packages"
			if got := l.into(lib, "numpy", lib+"/numpy"); got != tt.pkg {
				t.Errorf("the package is entered: %v", got)
			}
			if got := l.into("/none/python3", "test", "/none/python3/test"); got != tt.test {
				t.Errorf("Python's own tests are entered: %v", got)
			}
		})
	}
}
