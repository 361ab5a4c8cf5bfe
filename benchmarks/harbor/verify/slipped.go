package verify

import (
	"context"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/benchmarks/sandboxed"
)

// A change of the work is odd if work seldom consists of it and programs obey it: a hidden file, a
// name that programs parse, what was removed or became a link, a file in the place of a folder or the
// other way around, and a file in a folder of the system.
// It is left out of a second opinion if the task's own solution did nothing like it and the
// verifier would meet it.

// A workChange is a file, folder or link of the work that the agent made, changed or removed.
type workChange struct {
	name    string // as JSON keeps it, if it is not UTF-8
	existed bool   // something was there before
	gone    bool   // nothing is there now
	turned  bool   // a folder is where a file was, or the other way around
	link    bool
	target  string // of the link; absolute
	unit    string // the new folder that it came with, or its name
}

// changes returns the changes of each stage's work, and what was kept of others.
func (c Claim) changes(ctx context.Context) ([][]workChange, error) {
	out := make([][]workChange, len(c.Evidence))
	for i := range c.Evidence {
		var err error
		if out[i], err = workChanges(ctx, c.Log, c.Work[i], c.Evidence[i].Files); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func workChanges(ctx context.Context, log event.Log, w *Work, files map[string]event.Blob) ([]workChange, error) {
	gone, err := unquoted(w.Gone)
	if err != nil {
		return nil, err
	}
	fresh, err := unquoted(w.New)
	if err != nil {
		return nil, err
	}
	turned, err := unquoted(w.Turned)
	if err != nil {
		return nil, err
	}
	existed, folder, other := setOf(gone), enclosing(fresh), setOf(turned)
	var out []workChange
	err = workFiles(ctx, log, files, func(name, link string) {
		x := workChange{name: inJSON(name), existed: existed[name] || other[name], turned: other[name], link: link != "",
			unit: inJSON(name)}
		if link != "" {
			x.target = inJSON(linkTarget(name, link))
		}
		delete(existed, name)
		if dir := folder(name); dir != "" && !x.existed {
			x.unit = inJSON(dir)
		}
		out = append(out, x)
	})
	for name := range existed {
		out = append(out, workChange{name: inJSON(name), existed: true, gone: true, unit: inJSON(name)})
	}
	return out, err
}

// inJSON returns a name as it is after it was kept as JSON.
func inJSON(name string) string { return string([]rune(name)) }

// kinds of odd changes.
type oddity byte

const (
	plain      oddity = iota
	hidden            // below a name with a dot
	parsed            // a name that programs may take for an option, an assignment or quoted
	replaced          // by a link, by a folder or a file that is none, or removed
	systemFile        // a file in a folder of the system that the instruction names
)

// odd says whether a change is odd, and what the verifier has to meet for it to count.
func odd(paths []string, c workChange) (kind oddity, at string) {
	root := "" // the longest path of the work that the name is within
	for _, p := range paths {
		if len(p) > len(root) && sandboxed.Within(c.name, p) && (c.name == p || folderIsWork(p)) {
			root = p
		}
	}
	switch {
	case root == "":
		return plain, ""
	case c.existed && (c.link || c.gone || c.turned):
		return replaced, c.name
	case c.name == root:
		if c.existed && !folderIsWork(root) {
			return systemFile, c.name
		}
		return plain, ""
	}
	end := len(root)
	for part := range strings.SplitSeq(strings.TrimPrefix(c.name, root+"/"), "/") {
		end += 1 + len(part)
		at = c.name[:end]
		switch {
		case strings.HasPrefix(part, "."):
			return hidden, at
		case strings.HasPrefix(part, "-"), strings.ContainsAny(part, "'\"`\\\n\r\t|;&$<>*?"),
			slices.ContainsFunc(strings.Fields(part), obeyed):
			return parsed, at
		}
	}
	return plain, ""
}

// obeyed reports whether a word is an option or an assignment. Shells and xargs split names into words.
func obeyed(word string) bool {
	name, _, ok := strings.Cut(word, "=")
	return ok && identifier(name) || len(word) > 1 && word[0] == '-'
}

func identifier(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return r != '_' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	})
}

// maxOdd limits the odd changes that a reference keeps.
const maxOdd = 20_000

// oddChanges returns the odd changes of the oracle's work: of a new folder its name, of very many
// hidden files those below which they are.
func (c Claim) oddChanges(changes [][]workChange) []string {
	found := map[string]bool{}
	for i, list := range changes {
		for _, x := range list {
			if kind, at := odd(c.Work[i].Paths, x); kind == hidden && len(found) >= maxOdd {
				found[at] = true
			} else if kind != plain {
				found[x.unit] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// rest returns the files, links and new folders that were kept of the changes outside of the work.
func (c Claim) rest(changes [][]workChange) []string {
	found := map[string]bool{}
	for i, list := range changes {
		for _, x := range list {
			if !x.gone && !isWork(c.Work[i].Paths, x.name, false) {
				found[x.name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// unlike returns the odd changes of the work that the oracle made nothing like, and that the
// verifier of the reference would have met.
func (c Claim) unlike(changes [][]workChange, ref *reference) []string {
	if ref.Oracle == nil {
		return nil
	}
	// Below hidden folders, siblings are folders, and digests the forms of names made of digests.
	own, siblings, digests := enclosing(ref.Odd), map[string]bool{}, map[string]bool{}
	for _, name := range ref.Odd {
		if dir := path.Dir(name); strings.Contains(dir, "/.") {
			siblings[dir] = true
			digests[digestForm(name)] = true
		}
	}
	delete(digests, "")
	found, listed, hiddenNames := setOf(ref.Trace.Found), setOf(ref.Trace.Listed), map[string]bool{}
	for _, list := range [][]string{ref.Trace.Found, ref.Trace.Missing, ref.Trace.Listed} {
		for _, name := range list {
			for ; name != "/" && name != "."; name = path.Dir(name) {
				if path.Base(name)[0] == '.' {
					hiddenNames[name] = true
				}
			}
		}
	}
	var out []string
	for i, list := range changes {
		for _, x := range list {
			kind, at := odd(c.Work[i].Paths, x)
			met := false
			switch kind {
			case hidden:
				met = hiddenNames[at]
			case parsed:
				met = listed[path.Dir(at)]
			case replaced:
				met = found[x.name] || listed[x.name] || x.link && listed[path.Dir(x.name)]
			case systemFile:
				met = found[x.name]
			}
			if !met || own(x.name) != "" ||
				kind == hidden && !x.existed && (siblings[path.Dir(x.unit)] || digests[digestForm(x.unit)]) {
				continue
			}
			out = append(out, x.unit)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// digestForm returns a name up to its first part that is made of hexadecimal digits only, with their
// number in place of them, or "". Stores of objects name files by their digests, so two commits of
// the same work have different names, in folders that may be new or not.
func digestForm(name string) string {
	for end := range name + "/" {
		if end < len(name) && name[end] != '/' {
			continue
		}
		dir, part := path.Split(name[:end])
		if len(part) > 1 && strings.Trim(part, "0123456789abcdef") == "" {
			return dir + strconv.Itoa(len(part))
		}
	}
	return ""
}

// enclosing returns a function that returns which of these files and folders a name is or is in, or
// "". Agents make files in a thousand folders, so names of other lengths are not looked for.
func enclosing(names []string) func(name string) string {
	set, sizes := setOf(names), map[int]bool{}
	for n := range set {
		sizes[len(n)] = true
	}
	return func(name string) string {
		for i := 1; i <= len(name); i++ {
			if (i == len(name) || name[i] == '/') && sizes[i] && set[name[:i]] {
				return name[:i]
			}
		}
		return ""
	}
}

// named returns the paths of the work at which the agent made or changed something.
func (c Claim) named(changes [][]workChange) (out []string) {
	for i, list := range changes {
		for _, x := range list {
			if !x.gone && slices.Contains(c.Work[i].Paths, x.name) {
				out = append(out, x.name)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// slipped returns the files and folders of the work that stand at names which the reference looked
// up in vain or makes itself, or that would be found in place of what it used.
func (c Claim) slipped(changes [][]workChange, known *reference) (out []string) {
	ref := &known.Trace
	missing, inMissing, listed, names := setOf(ref.Missing), enclosing(ref.Missing), setOf(ref.Listed), setOf(ref.Names)
	stems := map[string][]string{}        // folders in which a name without its extension was found
	alike := map[string]map[string]bool{} // names that were found, by how they are written in small letters
	above := map[string]bool{}            // folders of names that were found
	picked, inPicked := setOf(ref.Picked), enclosing(ref.Picked)
	made := map[string]bool{} // names that the verifier makes and the oracle does not
	oracles := setOf(known.Named)
	for _, f := range union(slices.Clone(ref.Picked), ref.Found) {
		if missing[f] && known.Oracle != nil && !oracles[f] {
			made[f] = true
		}
		for p := path.Dir(f); p != "/" && p != "." && !above[p]; p = path.Dir(p) {
			above[p] = true
		}
		// What is below a picked folder was found by the folder's name: email/utils.py is not utils.
		if s := stem(f); len(stems[s]) < 4 && (picked[f] || inPicked(path.Dir(f)) == "") {
			stems[s] = append(stems[s], path.Dir(f))
		}
		low := strings.ToLower(f)
		if alike[low] == nil {
			alike[low] = map[string]bool{}
		}
		alike[low][f] = true
	}
	seen := map[string]bool{}
	for i, list := range changes {
		paths := c.Work[i].Paths
		judge := func(name string) bool {
			dir := path.Dir(name)
			switch written := alike[strings.ToLower(name)]; {
			case slices.Contains(paths, name): // the instruction names it
				return made[name]
			case missing[name]:
				return true
			case !listed[dir] || written[name] || above[name]:
			case names[path.Base(name)], len(written) > 0:
				return true
			default:
				return slices.ContainsFunc(stems[stem(name)],
					func(d string) bool { return d != dir && !isWork(paths, d, true) })
			}
			return false
		}
		for _, x := range list {
			if x.link && inMissing(x.target) != "" { // it leads to what the verifier makes
				out = append(out, x.name)
			}
			// A folder may be what stands there, if the agent made it.
			for p := x.name; !x.gone && !seen[p]; p = path.Dir(p) {
				seen[p] = true
				if isWork(paths, p, true) && judge(p) {
					out = append(out, p)
				}
				if p == x.unit {
					break
				}
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// elsewhere returns new files and folders outside of the work that stand at names which the
// reference looked up in vain: a program may have done so without opening them.
func (c Claim) elsewhere(ctx context.Context, ref *Trace) (out []string, err error) {
	missing := setOf(ref.Missing)
	for i, ev := range c.Evidence {
		err := changeList(ctx, c.Log, ev.Files, func(mark, name string) {
			name = inJSON(name)
			if mark == "+" && missing[name] && !isWork(c.Work[i].Paths, name, true) && !ours(name) {
				out = append(out, name)
			}
		})
		if err != nil {
			return nil, err
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
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
