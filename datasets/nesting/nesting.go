// Package nesting keeps a YAML parser from text that is nested beyond reason: the library's time
// and memory grow with the square of the depth, so that a few hundred kilobytes could take all of a
// machine. What is nested by indentation is as long as that by itself, and is no danger.
package nesting

import (
	"bytes"

	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/token"
)

// Deep finds where a text has more than max brackets within brackets, or on one line more than max
// dashes, keys, anchors or tags one within the other. Lines and columns count from 1; line 0 means
// that it is nowhere.
func Deep(text []byte, max int) (line, column int) {
	if !suspect(text, max) {
		return 0, 0
	}
	open, run, at := 0, 0, 0
	for _, t := range lexer.Tokenize(string(text)) {
		if t.Position.Line != at {
			run, at = 0, t.Position.Line
		}
		switch t.Type {
		case token.SequenceStartType, token.MappingStartType:
			open++
		case token.SequenceEndType, token.MappingEndType:
			open--
		case token.SequenceEntryType, token.MappingKeyType, token.MappingValueType, token.AnchorType, token.TagType:
			run++
		case token.CollectEntryType: // a comma: what follows is beside, not within
			run = 0
		}
		if open > max || run > max {
			return t.Position.Line, t.Position.Column
		}
	}
	return 0, 0
}

// suspect reports whether a text could be too deep at all, going by its bytes alone: most are not,
// and are not read twice for it.
func suspect(text []byte, max int) bool {
	if bytes.Count(text, []byte("["))+bytes.Count(text, []byte("{")) > max {
		return true
	}
	for line := range bytes.Lines(text) {
		n := 0
		for _, c := range line {
			switch c {
			case '-', '?', ':', '&', '!':
				if n++; n > max {
					return true
				}
			}
		}
	}
	return false
}
