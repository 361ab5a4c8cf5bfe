package format

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

var canary = regexp.MustCompile(`(?i)^(<!--.*canary.*-->|#.*canary.*)$`)

// cleanInstruction is the text of an instruction.md as the agent gets it: without byte-order mark,
// carriage returns, the leading lines that are canaries, and the blank lines after them. What an
// agent could not read is an error: another encoding than UTF-8, and nothing at all.
func cleanInstruction(b []byte) (text string, err error) {
	switch {
	case bytes.HasPrefix(b, []byte("\xff\xfe")) || bytes.HasPrefix(b, []byte("\xfe\xff")):
		return "", errors.New("UTF-16; " + convert("utf16"))
	case bytes.IndexByte(b, 0) >= 0:
		return "", errors.New("it holds bytes of 0, as UTF-16 does; " + convert("utf16"))
	}
	for i, line := range bytes.Split(b, []byte("\n")) {
		if !utf8.Valid(line) {
			return "", fmt.Errorf("not UTF-8 (line %d); %s", i+1, convert("latin1"))
		}
	}
	text = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(string(bytes.TrimPrefix(b, []byte("\xef\xbb\xbf"))))
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
	if strings.TrimSpace(text) == "" {
		return "", errors.New("blank; it tells the agent nothing")
	}
	return text, nil
}

// convert says how to make a file UTF-8.
func convert(from string) string {
	return "convert the file, for example by: iconv -f " + from + " -t utf8"
}
