package harbor

import (
	"bytes"
	"regexp"
	"strings"
)

var canary = regexp.MustCompile(`(?i)^(<!--.*canary.*-->|#.*canary.*)$`)

// instruction is the text of an instruction.md as the agent gets it: without byte-order mark, carriage returns, the leading lines that are
// canaries, and the blank lines after them. What is not UTF-8 is replaced, and valid tells so.
func instruction(b []byte) (text string, valid bool) {
	s := string(bytes.TrimPrefix(b, []byte("\xef\xbb\xbf")))
	text = strings.ToValidUTF8(s, "\ufffd")
	valid = text == s
	text = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(text)
	for text != "" {
		line, rest, _ := strings.Cut(text, "\n")
		if !canary.MatchString(strings.TrimSpace(line)) {
			break
		}
		text = rest
	}
	for text != "" {
		line, rest, _ := strings.Cut(text, "\n")
		if strings.TrimSpace(line) != "" {
			break
		}
		text = rest
	}
	return text, valid
}
