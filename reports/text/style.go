package text

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// A Style controls the layout of text. The zero value is for files and pipes: no colour, unlimited
// line length.
type Style struct {
	Width int  // of the terminal; 0 means unlimited
	Color bool // set by the caller after checking NO_COLOR and for a terminal
	Full  bool // do not truncate anything
}

func (s Style) paint(code, text string) string {
	if !s.Color || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (s Style) bold(t string) string { return s.paint("1", t) }
func (s Style) dim(t string) string  { return s.paint("2", t) }
func (s Style) bad(t string) string  { return s.paint("31", t) }
func (s Style) good(t string) string { return s.paint("32", t) }
func (s Style) warn(t string) string { return s.paint("33", t) }

// A printer remembers the first write error.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) f(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format, args...)
	}
}

// A column is a column of a table.
type column struct {
	head  string
	right bool // right-aligned, for numbers
	// if the table is too wide, the column with the highest value is dropped first; 0 is never
	// dropped
	drop  int
	cells []string
}

// table prints aligned columns, without those that do not fit. It returns the headings of the
// omitted columns.
func (p *printer) table(st Style, indent string, cols []*column) (dropped []string) {
	widths := func() (ws []int, total int) {
		total = len(indent)
		for i, c := range cols {
			w := utf8.RuneCountInString(c.head)
			for _, x := range c.cells {
				w = max(w, utf8.RuneCountInString(x))
			}
			ws = append(ws, w)
			if i > 0 {
				total += 2
			}
			total += w
		}
		return ws, total
	}
	ws, total := widths()
	for st.Width > 0 && total > st.Width {
		worst := -1
		for i, c := range cols {
			if c.drop > 0 && (worst < 0 || c.drop > cols[worst].drop) {
				worst = i
			}
		}
		if worst < 0 {
			break
		}
		dropped = append(dropped, cols[worst].head)
		cols = append(cols[:worst:worst], cols[worst+1:]...)
		ws, total = widths()
	}
	row := func(cell func(c *column) string, paint func(string) string) {
		var b strings.Builder
		for i, c := range cols {
			if i > 0 {
				b.WriteString("  ")
			}
			x := cell(c)
			pad := strings.Repeat(" ", max(0, ws[i]-utf8.RuneCountInString(x)))
			if c.right {
				x = pad + x
			} else {
				x += pad
			}
			b.WriteString(x)
		}
		p.f("%s%s\n", indent, paint(strings.TrimRight(b.String(), " ")))
	}
	row(func(c *column) string { return c.head }, st.dim)
	for i := range cols[0].cells {
		row(func(c *column) string { return c.cells[i] }, func(s string) string { return s })
	}
	return dropped
}

const unknown = "–"

func percent(x *float64) string {
	if x == nil {
		return unknown
	}
	v := *x * 100
	switch { // never round to 0 or 100 %
	case v > 99.9 && v < 100:
		return "> 99.9 %"
	case v > 0 && v < 0.1:
		return "< 0.1 %"
	}
	return trim(fmt.Sprintf("%.1f", v)) + " %"
}

func trim(s string) string { return strings.TrimSuffix(s, ".0") }

func score(x *float64) string {
	if x == nil {
		return unknown
	}
	return fmt.Sprintf("%.3f", *x)
}

func one(x *float64) string {
	if x == nil {
		return unknown
	}
	return fmt.Sprintf("%.1f", *x)
}

// USD formats an amount in dollars with as many digits as are significant.
func USD(x float64) string { return dollars(&x) }

func dollars(x *float64) string {
	switch {
	case x == nil:
		return "unknown"
	case *x == 0:
		return "$0"
	case *x > 0 && *x < 1e-8:
		return "< $0.00000001"
	case *x > 0 && *x < 0.001: // two significant digits
		return "$" + strings.TrimRight(strconv.FormatFloat(*x, 'f', 1-int(math.Floor(math.Log10(*x))), 64), "0")
	case *x < 0.1:
		return fmt.Sprintf("$%.4f", *x)
	}
	return fmt.Sprintf("$%.2f", *x)
}

// count formats a number with at most five characters.
func count(n int64) string {
	f := float64(n)
	switch {
	case n < 10_000:
		return fmt.Sprint(n)
	case n < 999_500:
		return fmt.Sprintf("%.3gk", f/1e3)
	case n < 999_500_000:
		return fmt.Sprintf("%.3gM", f/1e6)
	}
	return fmt.Sprintf("%.3gG", f/1e9)
}

// bytesOf formats a size for users.
func bytesOf(n int64) string {
	switch {
	case n < 10_000:
		return plural(int(n), "byte")
	case n < 10<<20:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d MiB", n>>20)
}

func duration(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	}
	return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
}

func millis(x *float64) string {
	if x == nil {
		return unknown
	}
	return duration(ms(*x))
}

func plural(n int, what string) string {
	switch {
	case n == 1:
	case strings.HasSuffix(what, "s"):
		what += "es"
	case strings.HasSuffix(what, "ly"):
		what = strings.TrimSuffix(what, "y") + "ies"
	default:
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// showCommand returns the command that shows a trial.
func showCommand(path, run, trial string) string {
	if path == "" {
		path = run
	}
	return "evalrun show " + quote(path) + " --trial " + trial
}

// quote quotes s for use in a command line.
func quote(s string) string {
	s = line(s)
	if s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:,=+@%") == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
