package nesting_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/datasets/nesting"
)

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
		{"text", "a: |\n  " + many("- ") + "\nb: '" + many(": - ? ") + "'\nc: " + many("x-y!? ") + "\n# " + many("- ") + "\n", "0:0"},
	} {
		line, column := nesting.Deep([]byte(tt.text), 10)
		if got := fmt.Sprintf("%d:%d", line, column); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}
