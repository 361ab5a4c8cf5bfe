package yamldoc

import (
	"encoding/json"
	"fmt"
	"math/big"
	"regexp"
	"strconv"
	"strings"
)

// Numbers of YAML 1.2's core schema, which include all JSON numbers.
var (
	wholeForm = regexp.MustCompile(`^([-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)$`)
	floatForm = regexp.MustCompile(`^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$`)
)

// PlainKind returns the kind of an unquoted scalar that the library takes for text. The library
// does not recognize numbers such as 1e-7 and numbers of more than 64 bits.
func PlainKind(text string) Kind {
	switch {
	case wholeForm.MatchString(text):
		return Int
	case floatForm.MatchString(text):
		return Float
	}
	return String
}

// digits returns a number in a form that strconv parses in base 10. YAML also has +1, 1_000, 0x1f
// and 0o17. Text that is not a whole number is returned unchanged.
func (n *Node) digits() string {
	t := strings.ReplaceAll(n.Text, "_", "")
	if n.Kind != Int {
		return t
	}
	base := 10
	// 017 is 17, as in YAML 1.2
	if s := strings.TrimLeft(t, "-+"); len(s) > 1 && s[0] == '0' && (s[1] < '0' || s[1] > '9') {
		base = 0
	}
	i, ok := new(big.Int).SetString(t, base)
	if !ok {
		return t
	}
	return i.String()
}

// literal returns a number, true or false as JSON.
func (n *Node) literal() (string, error) {
	switch {
	case n.Kind == Bool:
		return strings.ToLower(n.Text), nil
	case n.Kind == Float:
		f, err := strconv.ParseFloat(n.digits(), 64)
		if err != nil { // a JSON number may be out of range too
			return "", fmt.Errorf("%s is not a number that can be held", n.Text)
		}
		if json.Valid([]byte(n.Text)) {
			return n.Text, nil
		}
		b, err := json.Marshal(f)
		return string(b), err
	case json.Valid([]byte(n.Text)):
		return n.Text, nil
	}
	t := n.digits()
	if !json.Valid([]byte(t)) {
		return "", fmt.Errorf("%q is not a whole number", n.Text)
	}
	return t, nil
}
