package assistantbench_test

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/benchmarks/assistantbench"
	"github.com/evalrun/evalrun/datasets/jsonl"
)

// What the published scorer gives. 5,999 of 6,000 pairs made up at random agreed with it too; in
// the one that did not, and in 735 more where it broke off, the answer was one that is treated in
// another way on purpose.
func TestScore(t *testing.T) {
	for _, tt := range []struct {
		answer, right string
		want          float64
	}{
		{`20`, `20`, 1.0},
		{`20.0`, `20`, 1.0},
		{`$20`, `20`, 1.0},
		{`25`, `20`, 0.7768564486857903},
		{`54.36`, `20`, 0.00010368427104801015},
		{`0`, `0`, 1.0},
		{`0`, `5`, 0.0},
		{`5`, `0`, 0.0},
		{`-5`, `5`, 0.0},
		{`abc`, `5`, 0.0},
		{``, `5`, 0.0},
		{`[1,2]`, `20`, 0.0},
		{`1,5`, `1.5`, 1.0},
		{`1,234`, `1234`, 0.0},
		{`12 square kilometers`, `12`, 1.0},
		{`12 sqft`, `12 sqft`, 1.0},
		{`50%`, `50`, 1.0},
		{`1e2`, `100`, 1.0},
		{`nan`, `5`, 0.0},
		{`The Eiffel Tower`, `Eiffel Tower`, 1.0},
		{`eiffel`, `Eiffel Tower`, 0.6666666666666666},
		{`Tower of Eiffel`, `Eiffel Tower`, 0.8},
		{`room 5`, `Room 6`, 0.0},
		{`room 5 a`, `Room 5`, 1.0},
		{`well-known`, `well known`, 1.0},
		{`O'Neil's`, `oneils`, 1.0},
		{`1,000 people`, `1000 people`, 1.0},
		{``, `x`, 0.0},
		{`"quoted"`, `quoted`, 1.0},
		{`{"a":1}`, `x y`, 0.0},
		{`the`, `a`, 1.0},
		{"a\nb", "a\nb", 0.5},
		{`["b","a"]`, "a\nb", 1.0},
		{`["a"]`, "a\nb", 0.5},
		{`["a","b","c"]`, "a\nb", 0.6666666666666666},
		{`["Crunch Fitness","Planet 24"]`, "Planet 24\nCrunch", 0.8333333333333333},
		{`Planet Crunch`, "Planet\nCrunch", 0.3333333333333333},
		{`[1,"a"]`, "a\nb", 0.0},
		{`["x"]`, `x`, 1.0},
		{`[]`, `x`, 0.0},
		{`{"name":"Joe","age":3}`, `{'name': 'Joe', 'age': 3}`, 1.0},
		{`{"name":"Joe"}`, `{"name": "Joe", "age": 3}`, 0.6666666666666666},
		{`{"name":"Joe","age":"3"}`, `{"name": "Joe", "age": 3}`, 1.0},
		{`{"name":"Joe","age":"three"}`, `{"name": "Joe", "age": 3}`, 0.5},
		{"{\"name\":\"Joe\",\"x\":1}\n{\"name\":\"Ann\"}", "{\"name\": \"Ann\"}\n{\"name\": \"Joe\", \"x\": 2}",
			0.8267132048600137},
		{`[{"name":"Joe"},{"name":"Ann"},{"name":"Bob"}]`, "{\"name\": \"Ann\"}\n{\"name\": \"Joe\"}",
			0.6666666666666666},
		{`Joe`, `{"name": "Joe"}`, 0.0},
		{`{"price":"$5"}`, `{"price": 5}`, 1.0},
		{`{"a":true}`, `{"a": true}`, 1.0},
		{`{"a":["x","y"]}`, `{"a": ["y","x"]}`, 1.0},
		{"12\n13", "12\n13", 0.0},
		{`x`, ``, 0.0},
		{"{\"a\": 1}\nbroken", `{"a": 1}`, 0.0},
		{`{"p":5}`, "{\"p\":5,\"q\":6}\n{\"p\":50}", 0.3333333333333333},
		{`{"b":1}`, `{"a":1}`, 0.0},
	} {
		if got := assistantbench.Score(tt.answer, tt.right); math.Abs(got-tt.want) > 1e-9 {
			t.Errorf("%q for %q: %v, not %v", tt.answer, tt.right, got, tt.want)
		}
	}
}

// Where the published scorer breaks off, or gives more than there is.
func TestScoreElsewhere(t *testing.T) {
	for _, tt := range []struct {
		answer, right string
		want          float64
	}{
		{"[20]", "20", 1},
		{`["20"]`, "20", 1},
		{"null", "x", 0},
		{`{"a":1}`, "12\n13", 0},
		{"-2", "-1", 1},
		{`[{"a":1},2,"x"]`, `{"a":1}`, 1.0 / 3},
		{`{"a":null}`, `{"a":null}`, 0},
		{`{}`, `{"a":1}`, 0},
	} {
		if got := assistantbench.Score(tt.answer, tt.right); math.Abs(got-tt.want) > 1e-9 {
			t.Errorf("%q for %q: %v, not %v", tt.answer, tt.right, got, tt.want)
		}
	}
}

// Answers are written by agents: any is graded, within bounds.
func TestScoreHostile(t *testing.T) {
	begin := time.Now()
	long := strings.Repeat("word 1 ", 10_000)
	list, err := json.Marshal(strings.Split(strings.Repeat("a b,", 3_000), ","))
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range []string{long, string(list), strings.Repeat("[", 1e4), strings.Repeat(`{"a":`, 1e4), "1e999",
		"-1e999", "\xff\xfe", "99999999999999999999999999"} {
		for _, right := range []string{"5", "x", "a\nb", `{"a":1}`, ""} {
			if s := assistantbench.Score(a, right); !(s >= 0 && s <= 1) {
				t.Errorf("%.20q for %q: %v", a, right, s)
			}
		}
	}
	t.Logf("in %v", time.Since(begin))
}

func TestSource(t *testing.T) {
	name := filepath.Join(t.TempDir(), "dev.jsonl")
	if err := os.WriteFile(name, []byte(`{"id":"x1","task":"How many?","answer":"20","difficulty":"Hard"}
{"id":"x2","task":"Which?","answer":null}
{"id":"x3"}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	var got []string
	bad := 0
	for x, err := range assistantbench.Source(jsonl.Open(name), "validation").Tasks(t.Context()) {
		if err != nil {
			bad++
			continue
		}
		got = append(got, x.ID+" "+string(x.Data)+" "+x.Fields["difficulty"])
	}
	want := `validation.0 {"id":"x1","task":"How many?","answer":"20"} Hard|validation.1 {"id":"x2","task":"Which?","answer":""} `
	if strings.Join(got, "|") != want || bad != 1 {
		t.Errorf("%d bad, %s\nnot %s", bad, strings.Join(got, "|"), want)
	}
}
