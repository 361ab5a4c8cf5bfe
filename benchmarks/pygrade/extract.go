package pygrade

import (
	"regexp"
	"strings"
)

// Code extracts the Python code from an answer. Of several fenced blocks (tagged as Python or
// untagged) it returns the last one that defines entry, else the first. Without fenced blocks the
// whole answer is code, with its leading white space.
func Code(answer, entry string) string {
	var blocks []string
	var block []string
	fence := "" // the fence that closes the block being read
	python := false
	for line := range strings.Lines(answer) {
		trimmed := strings.TrimSpace(line)
		switch {
		case fence == "":
			for _, f := range []string{"```", "~~~"} {
				if strings.HasPrefix(trimmed, f) {
					mark := trimmed[:len(trimmed)-len(strings.TrimLeft(trimmed, f[:1]))]
					info := strings.ToLower(strings.TrimSpace(trimmed[len(mark):]))
					fence, block = mark, nil
					python = info == "" || strings.HasPrefix(info, "py")
				}
			}
		case strings.HasPrefix(trimmed, fence) && strings.Trim(trimmed, fence[:1]) == "":
			if python {
				blocks = append(blocks, strings.Join(block, ""))
			}
			fence = ""
		default:
			block = append(block, line)
		}
	}
	if fence != "" && python { // the answer was cut off by a limit: use the incomplete block
		blocks = append(blocks, strings.Join(block, ""))
	}
	if len(blocks) == 0 {
		return answer
	}
	for i := len(blocks) - 1; i >= 0; i-- {
		if defines(blocks[i], entry) {
			return blocks[i]
		}
	}
	return blocks[0]
}

// Compose builds a program from a prompt that ends in the signature of entry, and code that is
// either the function's body or defines entry itself. In the latter case only the part of the
// prompt before the function (imports, helpers) is put before the code. If a body lost its common
// indentation, or only that of its first line, Compose restores it.
func Compose(prompt, code, entry string) string {
	if at := definition(entry).FindStringIndex(prompt); defines(code, entry) {
		if at == nil {
			return code
		}
		return prompt[:at[0]] + "\n" + code
	}
	return prompt + indent(code)
}

func defines(code, entry string) bool { return definition(entry).MatchString(code) }

func definition(entry string) *regexp.Regexp {
	return regexp.MustCompile(`(?m)^(?:async )?def ` + regexp.QuoteMeta(entry) + `\b`)
}

// indent restores the indentation of a function's body.
func indent(code string) string {
	lines := strings.SplitAfter(code, "\n")
	firstLine, flat := -1, 0
	for i, l := range lines {
		if strings.TrimSpace(l) == "" {
			continue
		}
		if firstLine < 0 {
			firstLine = i
		}
		if l[0] != ' ' && l[0] != '\t' && l[0] != '#' {
			flat++
		}
	}
	if firstLine < 0 || lines[firstLine][0] == ' ' || lines[firstLine][0] == '\t' {
		return code // the body is indented correctly; unindented lines after it are more code
	}
	for i, l := range lines {
		if strings.TrimSpace(l) != "" && (i == firstLine || flat > 1) {
			lines[i] = "    " + l
		}
	}
	return strings.Join(lines, "")
}
