package workspace

import (
	"strings"
	"testing"
)

// The parser is recursive, and a stack that is full ends the process.
func TestDeepCommand(t *testing.T) {
	for _, open := range []string{"$(", "(", "{ ", "`", "\"$(", "if ", "((", "<(", "$((", "${a:-", "[[ ( ", "while ", "! ", "a && ", "f() ", "case x in a) "} {
		for _, n := range []int{maxSplit - 2, 5 << 20} {
			topLevel("x\n" + strings.Repeat(open, n/len(open)))
		}
	}
}
