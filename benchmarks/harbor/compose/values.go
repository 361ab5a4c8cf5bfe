package compose

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

var units = map[string]float64{"": 1, "b": 1, "k": 1 << 10, "kb": 1 << 10, "kib": 1 << 10, "m": 1 << 20, "mb": 1 << 20,
	"mib": 1 << 20,
	"g":   1 << 30, "gb": 1 << 30, "gib": 1 << 30, "t": 1 << 40, "tb": 1 << 40, "tib": 1 << 40}

// parseSize parses a number of bytes, such as 512m or 2GiB. Units are powers of 1024, as in the
// engine.
func parseSize(s string) (int64, error) {
	s = strings.TrimSpace(s)
	i := strings.LastIndexAny(s, "0123456789.") + 1
	n, err := strconv.ParseFloat(s[:i], 64)
	unit, ok := units[strings.ToLower(strings.TrimSpace(s[i:]))]
	if err != nil || !ok || !(n*unit >= 0 && n*unit < 1<<60) {
		return 0, fmt.Errorf("%q; want a size such as 512m or 2g", s)
	}
	return int64(n * unit), nil
}

func parseNumber(s string) (float64, error) {
	n, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
	if err != nil || math.IsNaN(n) || math.IsInf(n, 0) || n < 0 {
		return 0, fmt.Errorf("%q; want a number", s)
	}
	return n, nil
}

// parseDuration parses a duration such as 90s or 1m30s, of at most 365 days.
func parseDuration(s string) (time.Duration, error) {
	d, err := time.ParseDuration(strings.TrimSpace(s))
	if err != nil || d < 0 || d > 365*24*time.Hour {
		return 0, fmt.Errorf("%q; want a duration such as 30s or 1m30s", s)
	}
	return d, nil
}

func parseBool(s string) (bool, error) {
	switch strings.ToLower(s) {
	case "true", "yes", "on", "y":
		return true, nil
	case "false", "no", "off", "n":
		return false, nil
	}
	return false, fmt.Errorf("%q; want true or false", s)
}

// split splits a command into words like a shell, without any expansion.
func split(s string) ([]string, error) {
	var out []string
	var b strings.Builder
	word, quote := false, byte(0)
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case quote == '\'':
			if c == '\'' {
				quote = 0
			} else {
				b.WriteByte(c)
			}
		case c == '\\' && i+1 < len(s):
			next := s[i+1]
			if quote == '"' && strings.IndexByte("$`\"\\\n", next) < 0 {
				b.WriteByte(c)
			}
			i++
			if word = true; next != '\n' {
				b.WriteByte(next)
			}
		case quote == '"':
			if c == '"' {
				quote = 0
			} else {
				b.WriteByte(c)
			}
		case c == '\'' || c == '"':
			quote, word = c, true
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
			if word {
				out = append(out, b.String())
				b.Reset()
				word = false
			}
		default:
			word = true
			b.WriteByte(c)
		}
	}
	if quote != 0 {
		return nil, fmt.Errorf("%q: a quotation mark is not closed", s)
	}
	if word {
		out = append(out, b.String())
	}
	return out, nil
}
