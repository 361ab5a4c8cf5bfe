package config

import (
	"fmt"
	"strings"

	"github.com/evalrun/evalrun/internal/yamldoc"
)

// oneOfMany holds hints for keys that take one value but were given a list.
var oneOfMany = map[string]string{
	"benchmark": "several are named under benchmarks",
	"agent":     "each is an arm of its own: name them under arms, or as an axis of matrix",
	"model":     "each is an arm of its own: name them under arms, or as an axis of matrix",
	"prompt":    "each is an arm of its own: name them under arms, or as an axis of matrix",
}

func (l *layout) decoder(root string) *yamldoc.Decoder {
	return &yamldoc.Decoder{
		Report: l.errs.Add, Root: strings.TrimSuffix(root, "."), Single: true, Names: l.reg.names,
		CheckText: func(text string) (msg, hint string) {
			if !secretForm.MatchString(text) {
				return "", ""
			}
			return fmt.Sprintf("%s is not replaced here", text),
				"variables are read only where a value is a secret: key, secrets"
		},
		Hint: func(path string, n *node) string {
			if n.Kind != yamldoc.List {
				return ""
			}
			return oneOfMany[path]
		},
	}
}

func last(path string) string { return path[strings.LastIndexByte(path, '.')+1:] }
