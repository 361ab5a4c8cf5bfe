package yamldoc

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
)

var update = flag.Bool("update", false, "write testdata/*.txtar anew")

// format has one of each that a format may have.
type format struct {
	Name    string            `json:"name"`
	Count   int               `json:"count" min:"1" max:"9"`
	Share   *float64          `json:"share" max:"1"`
	Seed    uint64            `json:"seed"`
	On      bool              `json:"on"`
	Color   string            `json:"color" enum:"red,green"`
	Tags    []string          `json:"tags" min:"1"`
	Words   words             `json:"words"`
	Pair    pair              `json:"pair"`
	Limits  limits            `json:"limits"`
	Tasks   []task            `json:"tasks"`
	ByName  map[string]*task  `json:"by_name"`
	Data    []byte            `json:"data"`
	Raw     json.RawMessage   `json:"raw"`
	Any     any               `json:"any"`
	Options map[string]string `json:"options"`
}

type limits struct {
	Time  notation `yaml:"time"`
	Steps int      `yaml:"steps"`
}

type task struct {
	ID    string `json:"id" required:"true"`
	Grade struct {
		Success string `json:"success"`
		Partial bool   `json:"partial"`
	} `json:"grade"`
	limits
	Inner
}

type Inner struct {
	Oracle string `json:"oracle"`
}

// words is a text or a list of texts.
type words []string

func (w *words) Set(text string) error { *w = words{text}; return nil }

// pair is a mapping, or two words with a colon between them.
type pair struct {
	A string `json:"a"`
	B string `json:"b"`
}

func (p *pair) Set(text string) error {
	var ok bool
	if p.A, p.B, ok = strings.Cut(text, ":"); !ok {
		return fmt.Errorf("%q has no colon", text)
	}
	return nil
}

// notation is a scalar alone, or a list.
type notation struct{ text string }

func (n *notation) Set(text string) error {
	if !strings.HasSuffix(text, "s") {
		return fmt.Errorf("%q has no unit", text)
	}
	n.text = text
	return nil
}

func (n *notation) SetList(texts []string) error {
	if len(texts) == 0 {
		return errors.New("the list is empty")
	}
	return n.Set(texts[0])
}

func (notation) Notation() (string, string, string) { return "a time", "", "5s" }

// Each file of an archive NAME.yaml or NAME.json has beside it NAME.want: the errors, or what was
// decoded. The archive's name says which Scalars it is about.
func TestErrors(t *testing.T) {
	for file, d := range map[string]Decoder{
		"testdata/typed.txtar": {Single: true}, "testdata/exact.txtar": {Scalars: Exact},
		"testdata/untyped.txtar": {Scalars: Untyped},
	} {
		a, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]string{}
		for _, f := range a.Files {
			want[f.Name] = string(f.Data)
		}
		out := &txtar.Archive{Comment: a.Comment}
		for _, f := range a.Files {
			base, ext, _ := strings.Cut(f.Name, ".")
			if ext == "want" {
				continue
			}
			got := decoded(d, f.Name, f.Data)
			out.Files = append(out.Files, f, txtar.File{Name: base + ".want", Data: []byte(got)})
			if diff := cmp.Diff(want[base+".want"], got); diff != "" && !*update {
				t.Errorf("%s: %s (-want +got):\n%s", file, f.Name, diff)
			}
		}
		if *update {
			if err := os.WriteFile(file, txtar.Format(out), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func decoded(d Decoder, name string, data []byte) string {
	var n *Node
	var err error
	if strings.HasSuffix(name, ".json") {
		n, err = ParseJSON(Pos{name, 1, 1}, data)
	} else {
		n, err = Parse(name, data, Bounds{})
	}
	if err == nil {
		var errs Errors
		d.Report = errs.Add
		var v format
		d.Decode(n, &v)
		if err = errs.Err(); err == nil {
			b, err := json.Marshal(v)
			if err != nil {
				return err.Error() + "\n"
			}
			return compact(b) + "\n"
		}
	}
	return err.Error() + "\n"
}

// compact leaves out what is empty.
func compact(b []byte) string {
	var m map[string]json.RawMessage
	json.Unmarshal(b, &m)
	for k, v := range m {
		if s := string(v); s == "null" || s == `""` || s == "0" || s == "false" || s == "{}" ||
			s == `{"a":"","b":""}` || strings.HasPrefix(s, `{"Time":{},"Steps":0}`) {
			delete(m, k)
		}
	}
	b, _ = json.Marshal(m)
	return string(b)
}

// A hostile file is refused quickly, and within bounds.
func TestHostile(t *testing.T) {
	many := func(s string) string { return strings.Repeat(s, 100_000) }
	bomb := "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n"
	for i := 1; i < 9; i++ {
		bomb += fmt.Sprintf("a%d: &a%d [%s]\n", i, i,
			strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d,", i-1), 10), ","))
	}
	keys := func(n int, between string) string {
		var text strings.Builder
		for i := range n {
			fmt.Fprintf(&text, "k%d: v%s\n", i, between)
		}
		return text.String()
	}
	for name, c := range map[string]struct {
		text, want string
		b          Bounds
	}{
		"many keys": {"a:\n  - 1\nb:\n" + strings.ReplaceAll("\n"+keys(50_000, ""), "\n", "\n  "),
			"f:5005:3: more than 5000 keys in one mapping", Bounds{}},
		"keys beside": {keys(50_000, "\nx: {a: b}"), "more than 5000 keys in one mapping", Bounds{}},
		"size":        {"# " + many("x"), "f: larger than 8 KiB", Bounds{Size: 8 << 10}},
		"brackets":    {"a: " + many("["), "f:1:68: nested deeper than 64", Bounds{}},
		"braces":      {"a: " + many("{a: "), "nested deeper than 64", Bounds{}},
		"dashes":      {many("- "), "f:1:129: nested deeper than 64", Bounds{}},
		"tags":        {many("!!seq "), "nested deeper than 64", Bounds{}},
		"anchors":     {many("&a "), "nested deeper than 64", Bounds{}},
		"keys":        {many("? "), "nested deeper than 64", Bounds{}},
		"indented":    {indented(100), "nested deeper than 64", Bounds{}},
		"a bomb":      {bomb, "the file grows beyond 1048576 values", Bounds{}},
		"values":      {"[" + strings.Repeat("1,", 200) + "]", "the file grows beyond 100 values", Bounds{Values: 100}},
		"itself":      {"a: &a {b: *a}", "f:1:11: a.b: the alias *a stands inside what it names", Bounds{}},
		"no aliases": {"a: &a 1\nb: *a", "f:1:4: a: anchors and aliases are not supported here",
			Bounds{NoAliases: true}},
		"NUL":     {"a: \x00", "f: this is not a text file", Bounds{}},
		"Latin-1": {"a: 1\nb: caf\xe9", "f:2:7: this is not UTF-8", Bounds{}},
	} {
		if _, err := Parse("f", []byte(c.text), c.b); err == nil || !strings.Contains(err.Error(), c.want) ||
			len(err.Error()) > 10_000 {
			t.Errorf("%s: %.300v, want %s", name, err, c.want)
		}
	}
	if _, err := ParseJSON(Pos{"f", 1, 1}, []byte(strings.Repeat("[", 5000)+strings.Repeat("]", 5000))); err == nil ||
		!strings.Contains(err.Error(), "nested deeper than 64") {
		t.Errorf("deep JSON: %.100v", err)
	}
}

func indented(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%sa:\n", strings.Repeat(" ", i))
	}
	return b.String()
}

// Deep counts brackets within brackets, and what one line nests without them.
func TestDeep(t *testing.T) {
	many := func(s string) string { return strings.Repeat(s, 20_000) }
	pairs := strings.TrimSuffix(many(`{"a": [1, 2], "b": {c: &x !!str d}}, `), ", ")
	for _, tt := range []struct{ name, text, want string }{
		{"nothing", "", "0:0"},
		{"brackets", "a: " + many("["), "1:14"},
		{"braces", "\n\n  - " + many("{a: "), "3:43"},
		{"dashes", "a:\n  " + many("- "), "2:23"},
		{"questions", many("? "), "1:21"},
		{"keys", many("a: "), "1:32"},
		{"dashes and keys", many("- a: "), "1:26"},
		{"anchors", many("&a "), "1:31"},
		{"tags", many("!!seq "), "1:51"},
		{"ten of them", "- - - - - - - - - - [[[[[[[[[[x]]]]]]]]]]\n", "0:0"},
		{"one beside the other", "[" + pairs + "]", "0:0"},
		{"one below the other", many("- a: b\n"), "0:0"},
		{"text", "a: |\n  " + many("- ") + "\nb: '" + many(": - ? ") + "'\nc: " + many("x-y!? ") + "\n# " + many("- ") +
			"\n", "0:0"},
	} {
		at, _ := costly([]byte(tt.text), 10)
		if got := fmt.Sprintf("%d:%d", at.Line, at.Column); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

// A node knows its path, also where an alias or << brought it in.
func TestPath(t *testing.T) {
	n, err := Parse("f", []byte("x: &x {env: [1, 2]}\nservices:\n  main:\n    <<: *x\n    own: *x\n"), Bounds{})
	if err != nil {
		t.Fatal(err)
	}
	main := n.Find("services").Find("main")
	for want, at := range map[string]*Node{
		"": n, "services.main": main, "services.main.env[1]": main.Find("env").Items[1],
		"services.main.own.env": main.Find("own").Find("env"), "x.env": n.At("x.env.none"),
	} {
		if got := at.Path(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if got := main.Find("own").Errorf("is %s", "odd").Error(); got != "f:1:7: services.main.own: is odd" {
		t.Error(got)
	}
}

func TestSupported(t *testing.T) {
	for want, v := range map[string]any{
		"": struct {
			A string            `json:"a" enum:"x,y"`
			B []map[string]*int `json:"b" min:"1"`
			C any               `json:"c"`
			D []byte            `json:"d"`
			E time.Time         `json:"e"`
			F chan int
		}{},
		"the type [2]int is not supported": struct {
			A [2]int `json:"a"`
		}{},
		"the type float32 is not supported": struct {
			A []float32 `json:"a"`
		}{},
		"the keys of a mapping must be strings": struct {
			A map[int]string `json:"a"`
		}{},
		"nanoseconds": struct {
			A time.Duration `json:"a"`
		}{},
		`the tag max:"much" is not a number`: struct {
			A int `json:"a" max:"much"`
		}{},
		"min is above max": struct {
			A int `json:"a" min:"2" max:"1"`
		}{},
		"not a struct": 5,
	} {
		err := Supported(reflect.TypeOf(v))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("Supported(%T) = %v, want %q", v, err, want)
		}
	}
}

// Bounds hold for unsigned numbers, and an enum for each text of a list.
func TestBounds(t *testing.T) {
	n, err := Parse("f.yaml", []byte("{n: 9, s: [x, z]}"), Bounds{})
	if err != nil {
		t.Fatal(err)
	}
	var v struct {
		N uint     `json:"n" max:"5"`
		S []string `json:"s" enum:"x,y"`
	}
	want := "f.yaml:1:5: n: 9 is too large; the most is 5\nf.yaml:1:11: s: \"z\" is unknown; did you mean \"x\" or \"y\"?"
	if err := Decode(n, &v); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	for text, ok := range map[string]bool{"{x: 1e-400}": false, "{x: 0e5}": true, "{x: 0.0}": true, "{x: 1e-300}": true} {
		n, err := Parse("f.yaml", []byte(text), Bounds{})
		if err != nil {
			t.Fatal(err)
		}
		if err := Decode(n, new(struct {
			X float64 `json:"x"`
		})); (err == nil) != ok {
			t.Errorf("%s: %v", text, err)
		}
	}
}
