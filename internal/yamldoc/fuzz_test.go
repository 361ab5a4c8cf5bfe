package yamldoc

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

// Whatever a file holds, reading it ends, within its bounds; errors name the file once, and a value
// is the same when it has been JSON.
func FuzzParse(f *testing.F) {
	for _, name := range []string{"typed", "exact", "untyped"} {
		a, err := txtar.ParseFile("testdata/" + name + ".txtar")
		if err != nil {
			f.Fatal(err)
		}
		for _, x := range a.Files {
			f.Add(x.Data)
		}
	}
	f.Add([]byte("a: &a {b: *a}\nc: !!str [*a]\n<<: [{x: 1}, *a]\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 4<<10 {
			return
		}
		root, err := Parse("FILE", data, Bounds{Values: 1000})
		checkErrors(t, err)
		if root == nil || err != nil {
			return
		}
		n := 0
		walk(root, &n, 0)
		if n > 1000 {
			t.Errorf("%d values", n)
		}
		for _, scalars := range []Scalars{Typed, Exact, Untyped} {
			var errs Errors
			d := Decoder{Report: errs.Add, Scalars: scalars, Single: scalars == Typed}
			d.Decode(root, new(format))
			checkErrors(t, errs.Err())
		}
		b, err := root.JSON()
		if err != nil {
			return
		}
		if !json.Valid(b) {
			t.Fatalf("no JSON: %s", b)
		}
		again, err := ParseJSON(Pos{"FILE", 1, 1}, b)
		if err != nil {
			t.Fatalf("%v of %s", err, b)
		}
		again.raw = nil
		c, err := again.JSON()
		if err != nil || string(c) != string(b) {
			t.Errorf("%s became %s, %v", b, c, err)
		}
	})
}

func FuzzJSON(f *testing.F) {
	for _, s := range []string{`{"a": [1, 2.50, "\u003c", null, true, {"b": {}}]}`, `[]`, `"\ud83d"`, ` 1e400 `,
		`{"a":1,"a":2}`, `{"":{}}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		n, err := ParseJSON(Pos{"FILE", 3, 1}, data)
		checkErrors(t, err)
		if err != nil {
			return
		}
		var errs Errors
		(&Decoder{Report: errs.Add}).Decode(n, new(format))
		checkErrors(t, errs.Err())
		if b, err := n.JSON(); err != nil || !json.Valid(b) {
			t.Errorf("%s: %v", b, err)
		}
	})
}

func walk(n *Node, count *int, depth int) {
	*count++
	if depth > MaxDepth+1 {
		panic("too deep")
	}
	for _, v := range n.Items {
		walk(v, count, depth+1)
	}
	for _, e := range n.Entries {
		walk(e.Value, count, depth+1)
	}
}

func checkErrors(t *testing.T, err error) {
	t.Helper()
	if err == nil {
		return
	}
	errs := err.(Errors)
	if len(errs) == 0 || len(errs) > maxErrors {
		t.Errorf("%d errors", len(errs))
	}
	line, column := 0, 0
	for _, e := range errs {
		if e.Pos.File != "FILE" || !strings.HasPrefix(e.Error(), "FILE:") {
			t.Errorf("no place: %v", e)
		}
		if e.Pos.Line < line || e.Pos.Line == line && e.Pos.Column < column {
			t.Errorf("out of order: %v", err)
		}
		line, column = e.Pos.Line, e.Pos.Column
	}
}
