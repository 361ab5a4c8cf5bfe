package config

import (
	"encoding/json"
	"testing"
)

// Paths in options are relative to the configuration's folder; a program is a path only if it has a
// slash.
func TestAbsolutePaths(t *testing.T) {
	keys := []string{"images", "more", "reset.command[0]"}
	for in, want := range map[string]string{
		`{"images":"a","more":["b","/c"]}`:         `{"images":"/x/a","more":["/x/b","/c"]}`,
		`{"reset":{"command":["./r.sh","./d"]}}`:   `{"reset":{"command":["/x/r.sh","./d"]}}`,
		`{"reset":{"command":["docker","start"]}}`: `{"reset":{"command":["docker","start"]}}`,
		`{"reset":{"command":[]}}`:                 `{"reset":{"command":[]}}`,
		`{"reset":"no","images":""}`:               `{"images":"","reset":"no"}`,
	} {
		opts := json.RawMessage(in)
		if err := absolutePaths(&opts, keys, "/x"); err != nil || string(opts) != want {
			t.Errorf("%s: %s, %v, want %s", in, opts, err, want)
		}
	}
}
