package action_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/browsergym/action"
	"github.com/evalrun/evalrun/browsergym/pyrepr"
)

func golden(t *testing.T, name string, v any) {
	t.Helper()
	dir := os.Getenv("EVALRUN_GOLDEN")
	if dir == "" {
		t.Skip("recordings of the reference are not there; name their folder by EVALRUN_GOLDEN")
	}
	raw, err := os.ReadFile(filepath.Join(dir, "actions", name))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, v); err != nil {
		t.Fatal(err)
	}
}

type outcome struct {
	Accepted bool   `json:"accepted"`
	Python   string `json:"python"`
	Error    string `json:"error"`
}

var everything = []string{"chat", "infeas", "bid", "coord", "nav", "tab"}

func TestGoldenParser(t *testing.T) {
	var rows []struct {
		Text    string            `json:"text"`
		Calls   []json.RawMessage `json:"calls"`
		Parse   string            `json:"parse_error"`
		Loose   outcome           `json:"loose"`
		Strict  outcome           `json:"strict"`
		Single  outcome           `json:"single"`
		Binding []string          `json:"binding"`
	}
	golden(t, "parser.json", &rows)
	if len(rows) == 0 {
		t.Fatal("no rows")
	}
	for _, r := range rows {
		calls, err := action.Parse(r.Text, false)
		switch {
		case r.Parse != "":
			if err == nil || err.Error() != r.Parse {
				t.Errorf("%q: error %v, want %s", r.Text, err, r.Parse)
			}
		case err != nil:
			t.Errorf("%q: %v", r.Text, err)
		case len(calls) != len(r.Calls):
			t.Errorf("%q: %d calls, want %d", r.Text, len(calls), len(r.Calls))
		}
		for _, m := range []struct {
			name string
			o    action.Options
			want outcome
		}{
			{"loose", action.Options{}, r.Loose}, {"strict", action.Options{Strict: true}, r.Strict},
			{"single", action.Options{Single: true}, r.Single},
		} {
			m.o.Subsets = everything
			set, err := action.New(m.o)
			if err != nil {
				t.Fatal(err)
			}
			calls, err := set.Parse(r.Text)
			if err != nil && strings.HasPrefix(err.Error(), "SyntaxError: keyword argument repeated") &&
				len(r.Binding) > 0 {
				err = nil // the table has it among the bindings
			}
			got := outcome{Accepted: err == nil}
			if err != nil {
				got.Error = err.Error()
			} else {
				for _, c := range calls {
					got.Python += c.String() + "\n"
				}
			}
			if got != m.want {
				t.Errorf("%q, %s:\n got  %+v\n want %+v", r.Text, m.name, got, m.want)
			}
		}
		set, _ := action.New(action.Options{Subsets: everything})
		calls, perr := set.Parse(r.Text)
		for i, want := range r.Binding {
			got := "ok"
			if perr != nil {
				got = perr.Error()
			} else if _, err := set.Bind(calls[i]); err != nil {
				got = err.Error()
			}
			if got != want {
				t.Errorf("%q, call %d: %s, want %s", r.Text, i, got, want)
			}
		}
	}
	t.Logf("%d rows", len(rows))
}

func TestGoldenSubsets(t *testing.T) {
	type param struct {
		Name     string          `json:"name"`
		Type     string          `json:"type"`
		Required bool            `json:"required"`
		Default  json.RawMessage `json:"default"`
	}
	var sets map[string]struct {
		Subsets []string `json:"subsets"`
		Count   int      `json:"count"`
		Actions []struct {
			Name      string  `json:"name"`
			Signature string  `json:"signature"`
			Examples  int     `json:"examples"`
			Params    []param `json:"parameters"`
		} `json:"actions"`
	}
	golden(t, "subsets.json", &sets)
	for name, want := range sets {
		set, err := action.New(action.Options{Subsets: want.Subsets})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := set.Specs(); len(got) != want.Count {
			t.Errorf("%s: %d actions, want %d", name, len(got), want.Count)
			continue
		}
		for i, a := range want.Actions {
			s := set.Specs()[i]
			if s.Name != a.Name || s.Signature() != a.Signature || len(s.Examples) != a.Examples {
				t.Errorf("%s: %s with %d examples, want %s with %d", name, s.Signature(), len(s.Examples), a.Signature,
					a.Examples)
			}
			for k, p := range a.Params {
				if q := s.Params[k]; q.Name != p.Name || (q.Default == nil) != p.Required {
					t.Errorf("%s: parameter %+v, want %+v", a.Name, q, p)
				}
			}
			strict, _ := action.New(action.Options{Subsets: want.Subsets, Strict: true, Single: true})
			for _, e := range s.Examples {
				calls, err := strict.Parse(e)
				if err != nil {
					t.Errorf("example %s: %v", e, err)
				} else if _, err := strict.Bind(calls[0]); err != nil || calls[0].Name != a.Name {
					t.Errorf("example %s of %s: %v", e, a.Name, err)
				}
			}
		}
	}
	var made []struct {
		Args struct {
			Subsets any `json:"subsets"`
		} `json:"args"`
		Error string   `json:"error"`
		Names []string `json:"names"`
	}
	golden(t, "constructor.json", &made)
	for _, m := range made {
		var subs []string
		switch v := m.Args.Subsets.(type) {
		case string:
			subs = []string{v}
		case []any:
			for _, x := range v {
				subs = append(subs, x.(string))
			}
		}
		set, err := action.New(action.Options{Subsets: subs})
		if err != nil {
			if err.Error() != m.Error {
				t.Errorf("%v: %v, want %s", subs, err, m.Error)
			}
		} else if !reflect.DeepEqual(set.Names(), m.Names) {
			t.Errorf("%v: %v, want %v", subs, set.Names(), m.Names)
		}
	}
}

func TestGoldenTools(t *testing.T) {
	var want []struct {
		Name   string          `json:"name"`
		Params json.RawMessage `json:"parameters"`
	}
	golden(t, "tools_openai.json", &want)
	set, _ := action.New(action.Options{Subsets: everything})
	got := set.Tools(true)
	if len(got) != len(want) {
		t.Fatalf("%d tools, want %d", len(got), len(want))
	}
	for i := range want {
		var a, b any
		if err := json.Unmarshal(got[i].Schema, &a); err != nil {
			t.Fatalf("%s: %v", got[i].Schema, err)
		}
		json.Unmarshal(want[i].Params, &b)
		if got[i].Name != want[i].Name || !reflect.DeepEqual(a, b) {
			t.Errorf("%s: %s, want %s", got[i].Name, got[i].Schema, want[i].Params)
		}
	}
}

func TestParseBounds(t *testing.T) {
	for _, s := range []string{
		strings.Repeat("a", 1<<20), strings.Repeat("f(", 1<<19), "f(" + strings.Repeat("[", 1<<20),
		strings.Repeat("f('", 300_000), strings.Repeat("# ", 1<<19),
		strings.Repeat("f(a=", 1<<18), "f(" + strings.Repeat("1,", 1<<19), "f(" + strings.Repeat("{'a':", 1<<18),
		strings.Repeat("'", 1<<20), strings.Repeat("f([1,", 200_000),
	} {
		action.Parse(s, false)
		action.Parse(s, true)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(`click('a\x41', button="left") # c`)
	f.Add("fill('1', '''a\nb''', {'k': [1, (2.5e3,), None]})")
	f.Fuzz(func(t *testing.T, s string) {
		calls, err := action.Parse(s, false)
		if err != nil {
			return
		}
		for _, c := range calls { // what was parsed is parsed again as the same
			again, err := action.Parse(c.String(), true)
			if strings.Contains(c.String(), "inf") || !strings.Contains(c.String(), "\\U") && err != nil &&
				strings.Contains(err.Error(), "Recursion") {
				continue
			}
			if err != nil || len(again) != 1 || again[0].String() != c.String() {
				t.Fatalf("%q became %q: %v, %v", s, c.String(), again, err)
			}
		}
	})
	_ = pyrepr.None{}
}
