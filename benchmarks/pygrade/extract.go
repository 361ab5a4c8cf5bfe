package pygrade

import (
	"regexp"
	"strings"
)

// Code finds the Python code in an answer. Of several fenced blocks (tagged as Python or not at
// all) the last that defines entry counts, else the first; without any, the answer is code as a
// whole, its leading blanks kept.
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
	if fence != "" && python { // cut off by a limit: what is there
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

// Compose makes a program of a prompt that ends in the head of entry, and code that is either the
// function's body or defines entry itself; then what stands in the prompt before the function
// (imports, helpers) is put before it. A body whose lines lost their common indentation, or only
// its first line's, gets it back.
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

// indent gives a body its indentation back.
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
		return code // a body as it should be; what follows it at the margin is more code
	}
	for i, l := range lines {
		if strings.TrimSpace(l) != "" && (i == firstLine || flat > 1) {
			lines[i] = "    " + l
		}
	}
	return strings.Join(lines, "")
}
