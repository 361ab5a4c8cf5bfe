package pyrepr_test

import (
	"strings"
	"testing"

	"github.com/evalrun/evalrun/browsergym/pyrepr"
)

func TestFromJSON(t *testing.T) {
	for in, want := range map[string]string{
		` {"b": [1, 1.0, 1e3, -0, 1e999], "a": null, "c": true, "é": "it's"} `: `{'b': [1, 1.0, 1000.0, 0, inf], 'a': None, 'c': True, 'é': "it's"}`,
		`12345678901234567890`: "12345678901234567890",
		`[]`:                   "[]",
		`{}`:                   "{}",
	} {
		v, err := pyrepr.FromJSON([]byte(in))
		if err != nil || pyrepr.Repr(v) != want {
			t.Errorf("%s: %v, %v, not %s", in, v, err, want)
		}
	}
	for _, in := range []string{"", "1 2", "{", `{"a"}`, "[1,]", "nope", strings.Repeat("[", 1e6)} {
		if v, err := pyrepr.FromJSON([]byte(in)); err == nil {
			t.Errorf("%.10s: %.10s", in, pyrepr.Repr(v))
		}
	}
}
