package progress

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rivo/uniseg"

	"github.com/evalrun/evalrun/harness/record"
)

// A screen is a terminal: text that is longer than a line goes on in the next one, and a carriage
// return goes to the line's beginning.
type screen struct {
	columns int
	lines   [][]string
	at      int
}

func (s *screen) Write(p []byte) (int, error) {
	if s.lines == nil {
		s.lines = [][]string{nil}
	}
	for g := uniseg.NewGraphemes(string(p)); g.Next(); {
		switch c := g.Str(); c {
		case "\r":
			s.at = 0
		case "\n", "\r\n":
			s.lines, s.at = append(s.lines, nil), 0
		default:
			if s.at+g.Width() > s.columns {
				s.lines, s.at = append(s.lines, nil), 0
			}
			last := &s.lines[len(s.lines)-1]
			for len(*last) < s.at+g.Width() {
				*last = append(*last, " ")
			}
			(*last)[s.at] = c
			s.at += g.Width()
		}
	}
	return len(p), nil
}

func (s *screen) text() (lines []string) {
	for _, l := range s.lines {
		if t := strings.TrimRight(strings.Join(l, ""), " "); t != "" {
			lines = append(lines, t)
		}
	}
	return lines
}

// On a terminal of any width the bar stays in its line, however long its text is.
func TestNarrow(t *testing.T) {
	for _, columns := range []int{40, 60, 79, 80, 100, 200} {
		synctest.Test(t, func(t *testing.T) {
			s := &screen{columns: columns}
			r := New(Options{Terminal: true, Total: 12_345, W: s, Width: func() int { return columns }})
			r.Making("a", "building image 日本語のイメージ: step 2/7, with a text that is long")
			for i := range 20 {
				r.Observe(started)
				r.Observe(scored(0.5, float64(i)))
				r.Observe(failed(record.Infra, false))
				time.Sleep(250 * time.Millisecond)
				synctest.Wait()
				if got := s.text(); len(got) != 1 {
					t.Errorf("%d columns: %d lines after %d drawings:\n%s", columns, len(got), i+1,
						strings.Join(got, "\n"))
					break
				}
			}
			if got := strings.Join(s.text(), "\n"); !strings.Contains(got, "run") ||
				!strings.Contains(got, fmt.Sprintf("/%d)", r.Total)) {
				t.Errorf("%d columns: %q", columns, got)
			}
			r.Close()
		})
	}
	s := &screen{columns: 30}
	r := New(Options{Terminal: true, Total: 3, W: s, Width: func() int { return 30 }})
	r.Close()
	if r.Mode != Plain {
		t.Errorf("30 columns: mode %s", r.Mode)
	}
}
