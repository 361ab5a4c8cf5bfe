package verify

import (
	"archive/tar"
	"bufio"
	"context"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/runtime/executor"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// A Trace is what a verifier looked up in a machine that no agent saw.
type Trace struct {
	executor.Lookups
	// Names are file names that its programs contain, such as "GNUmakefile": a program that lists a
	// folder looks them up without a system call.
	Names []string `json:"names,omitempty"`
}

// add adds what one more command looked up.
func (t *Trace) add(more executor.Lookups) {
	for _, l := range []struct{ to, from *[]string }{{&t.Found, &more.Found}, {&t.Missing, &more.Missing},
		{&t.Listed, &more.Listed}, {&t.Executed, &more.Executed}, {&t.Picked, &more.Picked}} {
		*l.to = union(*l.to, *l.from)
	}
	if !more.Complete {
		t.Complete, t.Why = false, more.Why
	}
}

func union(a, b []string) []string {
	a = append(a, b...)
	slices.Sort(a)
	return slices.Compact(a)
}

// Bounds of the programs that are searched for names.
const (
	maxPrograms     = 100
	maxProgramBytes = 16 << 20 // of one; the rest is not read
	maxNames        = 20_000
)

// readNames adds the names in the programs that were executed.
func (t *Trace) readNames(ctx context.Context, sb sandbox.Sandbox, programs []string) error {
	var found []map[string]bool // by program
	for _, name := range programs[:min(len(programs), maxPrograms)] {
		r, err := sb.Get(ctx, name)
		if err != nil {
			if Responds(ctx, sb) { // the tests removed it
				continue
			}
			return err
		}
		tr := tar.NewReader(r)
		if h, err := tr.Next(); err == nil && h.Typeflag == tar.TypeReg {
			names := map[string]bool{}
			scanNames(io.LimitReader(tr, maxProgramBytes), names)
			found = append(found, names)
		}
		r.Close()
	}
	t.addNames(found)
	return nil
}

// addNames adds the names of programs while there is room. Those with few come first, so that large
// programs do not hide what is in small ones.
func (t *Trace) addNames(programs []map[string]bool) {
	all := setOf(t.Names)
	slices.SortFunc(programs, func(a, b map[string]bool) int { return len(a) - len(b) })
	for _, names := range programs {
		for _, n := range slices.Sorted(maps.Keys(names)) {
			if len(all) < maxNames {
				all[n] = true
			}
		}
	}
	t.Names = slices.Sorted(maps.Keys(all))
}

// scanNames adds words that look like names of files: with a dot, or with capitals as in Makefile.
func scanNames(r io.Reader, found map[string]bool) {
	in := bufio.NewReaderSize(r, 64<<10)
	var word []byte
	for {
		c, err := in.ReadByte()
		if err == nil && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' ||
			c == '_' ||
			c == '-') {
			if len(word) <= 64 {
				word = append(word, c)
			}
			continue
		}
		if s := string(word); len(s) >= 4 && len(s) <= 64 && len(found) < maxNames && fileName(s) {
			found[s] = true
		}
		if word = word[:0]; err != nil {
			return
		}
	}
}

func fileName(s string) bool {
	letters := strings.ContainsFunc(s, func(r rune) bool { return r >= 'a' && r <= 'z' })
	dot := strings.LastIndexByte(s, '.')
	return letters && (s[0] == '.' || dot > 0 && len(s)-dot <= 6 && dot < len(s)-1 || s[0] >= 'A' && s[0] <= 'Z' &&
		dot < 0 && !strings.ContainsAny(s, "_-"))
}
