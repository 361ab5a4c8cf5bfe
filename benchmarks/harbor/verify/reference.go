package verify

import (
	"archive/tar"
	"bufio"
	"context"
	"io"
	"path"
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
		{&t.Listed, &more.Listed}, {&t.Executed, &more.Executed}} {
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
	found := map[string]bool{}
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
			scanNames(io.LimitReader(tr, maxProgramBytes), found)
		}
		r.Close()
	}
	for n := range found {
		if len(t.Names) < maxNames {
			t.Names = append(t.Names, n)
		}
	}
	t.Names = union(t.Names, nil)
	return nil
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

// slipped returns the files and folders of the work that stand at names which the reference looked
// up in vain or makes itself, or that would be found in place of what it used.
func (c Claim) slipped(ctx context.Context, ref *Trace) (out []string, err error) {
	missing, listed, names := setOf(ref.Missing), setOf(ref.Listed), setOf(ref.Names)
	stems := map[string][]string{}        // folders in which a name without its extension was found
	alike := map[string]map[string]bool{} // names that were found, by how they are written in small letters
	for _, f := range ref.Found {
		s := stem(f)
		if dirs := stems[s]; len(dirs) < 4 {
			stems[s] = append(dirs, path.Dir(f))
		}
		low := strings.ToLower(f)
		if alike[low] == nil {
			alike[low] = map[string]bool{}
		}
		alike[low][f] = true
	}
	seen := map[string]bool{}
	for i := range c.Evidence {
		paths := c.Work[i].Paths
		judge := func(name string) bool {
			name = inJSON(name)
			dir := path.Dir(name)
			switch written := alike[strings.ToLower(name)]; {
			case slices.Contains(paths, name): // the instruction names it
			case missing[name]:
				return true
			case !listed[dir] || written[name]:
			case names[path.Base(name)], len(written) > 0:
				return true
			default:
				return slices.ContainsFunc(stems[stem(name)],
					func(d string) bool { return d != dir && !isWork(paths, d, true) })
			}
			return false
		}
		err := workFiles(ctx, c.Log, c.Evidence[i].Files, func(name string, _ bool) {
			for p := name; p != "/" && !seen[p]; p = path.Dir(p) { // a folder may be what stands there
				seen[p] = true
				if isWork(paths, p, true) && judge(p) {
					out = append(out, p)
				}
			}
		})
		if err != nil {
			return nil, err
		}
	}
	slices.Sort(out)
	return out, nil
}

func setOf(list []string) map[string]bool {
	m := make(map[string]bool, len(list))
	for _, s := range list {
		m[s] = true
	}
	return m
}

// stem is a file's name without its extensions.
func stem(name string) string {
	base := path.Base(name)
	if len(base) > 1 {
		if i := strings.IndexByte(base[1:], '.'); i >= 0 {
			return base[:i+1]
		}
	}
	return base
}
