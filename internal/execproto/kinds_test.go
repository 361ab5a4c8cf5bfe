package execproto

import (
	"go/ast"
	"go/constant"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"strings"
	"testing"
)

// No two kinds of frames have the same number, also of those that stand in several files.
func TestKinds(t *testing.T) {
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	files := token.NewFileSet()
	var list []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(files, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, f)
	}
	conf := types.Config{Importer: importer.ForCompiler(files, "source", nil), Error: func(error) {}}
	pkg, _ := conf.Check("execproto", files, list, nil) // constants need no other package
	seen := map[int64]string{}
	for _, name := range pkg.Scope().Names() {
		c, ok := pkg.Scope().Lookup(name).(*types.Const)
		if !ok || !strings.HasPrefix(name, "Kind") {
			continue
		}
		n, _ := constant.Int64Val(c.Val())
		if other := seen[n]; other != "" {
			t.Errorf("%s and %s are both %#x", other, name, n)
		}
		seen[n] = name
	}
	if len(seen) < 20 {
		t.Errorf("only %d kinds: %v", len(seen), seen)
	}
}
