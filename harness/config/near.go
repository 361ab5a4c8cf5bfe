package config

import (
	"fmt"
	"strings"

	"github.com/evalrun/evalrun/internal/suggest"
)

// didYouMean says which names are near, or, when none is and there are few, which there are.
func didYouMean(word string, names []string) string {
	meant := suggest.Names(word, names)
	if len(meant) == 0 {
		if len(names) == 0 || len(names) > 12 {
			return ""
		}
		return "known: " + strings.Join(names, ", ")
	}
	for i, n := range meant {
		meant[i] = fmt.Sprintf("%q", n)
	}
	return "did you mean " + strings.Join(meant, " or ") + "?"
}
