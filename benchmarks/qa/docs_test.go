package qa

import (
	"os"
	"reflect"
	"strings"
	"testing"
)

// The page names every option.
func TestDocs(t *testing.T) {
	page, err := os.ReadFile("../../docs/qa.md")
	if err != nil {
		t.Fatal(err)
	}
	for i := range reflect.TypeFor[Options]().NumField() {
		name, _, _ := strings.Cut(reflect.TypeFor[Options]().Field(i).Tag.Get("json"), ",")
		if !strings.Contains(string(page), "`"+name+"`") {
			t.Errorf("docs/qa.md does not name the option %s", name)
		}
	}
}
