package config

import (
	"encoding/json"
	"fmt"
	"math/big"
	"regexp"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
)

// Numbers of YAML 1.2's core schema, and so all of JSON's.
var (
	wholeForm = regexp.MustCompile(`^([-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)$`)
	floatForm = regexp.MustCompile(`^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$`)
)

// plainKind is what a scalar without quotes is that the YAML reader takes for text: it does not
// know numbers such as 1e-7, nor those that are too large for 64 bits.
func plainKind(text string) kind {
	switch {
	case wholeForm.MatchString(text):
		return kindInt
	case floatForm.MatchString(text):
		return kindFloat
	}
	return kindString
}

// digits is a number in a notation that strconv reads in base 10: YAML has +1, 1_000, 0x1f and
// 0o17, too. Text that is no whole number stays as it is.
func (n *node) digits() string {
	t := strings.ReplaceAll(n.text, "_", "")
	if n.kind != kindInt {
		return t
	}
	base := 10
	if s := strings.TrimLeft(t, "-+"); len(s) > 1 && s[0] == '0' && (s[1] < '0' || s[1] > '9') { // 017 is 17, as in YAML 1.2
		base = 0
	}
	i, ok := new(big.Int).SetString(t, base)
	if !ok {
		return t
	}
	return i.String()
}

// literal is a number, true or false as JSON.
func (n *node) literal() (string, error) {
	if n.kind == kindFloat {
		f, err := strconv.ParseFloat(n.digits(), 64)
		if err != nil { // what is JSON may be out of range as well
			return "", fmt.Errorf("%s is not a number that can be held", n.text)
		}
		if json.Valid([]byte(n.text)) {
			return n.text, nil
		}
		b, err := json.Marshal(f)
		return string(b), err
	}
	if json.Valid([]byte(n.text)) {
		return n.text, nil
	}
	t := n.digits()
	if !json.Valid([]byte(t)) {
		return "", fmt.Errorf("%q is not a whole number", n.text)
	}
	return t, nil
}

// verbatim is YAML that is written as it is.
type verbatim string

func (v verbatim) MarshalYAML() ([]byte, error) { return []byte(v), nil }

// written is a value for the YAML writer, which knows as little of numbers such as 1e-7 as the
// reader: it would write the text "1e-7" without quotes.
func (n *node) written() any {
	switch n.kind {
	case kindMap:
		m := yaml.MapSlice{}
		for _, e := range n.entries {
			m = append(m, yaml.MapItem{Key: e.key, Value: e.val.written()})
		}
		return m
	case kindList:
		l := []any{}
		for _, v := range n.list {
			l = append(l, v.written())
		}
		return l
	case kindNull:
		return nil
	case kindString:
		if plainKind(n.text) != kindString {
			return verbatim(strconv.Quote(n.text))
		}
		return n.text
	}
	return verbatim(n.text)
}
