package server

import (
	"os"
	"path"
	"strconv"
	"strings"

	"github.com/evalrun/evalrun/internal/execproto"
)

// A program may find a name without looking it up, in the entries of a directory that it has read.
// It then uses the first of several directories that has the name. The tracer cannot see which names
// the program compares, but what it has used: the entries of listed directories that are, or contain,
// what it looks up afterwards. These are "picked".
//
// Below a picked directory, which the program may list as well, it does not search: a name there is
// used with that of the directory (in Python, email.utils is no module utils). Such a directory is one
// in which the program has looked up something before it has read its entries.

// A listing is what a process knows of directories. Processes that execute nothing share that of
// their parent.
type listing struct {
	dirs map[string]uint8
}

const (
	dirUsed   = 1 << iota // something in it was found
	dirListed             // its entries were read
	dirInner              // and something in it was found before
)

// maxListing limits the directories of a listing.
const maxListing = 200_000

// note adds to what is known of a directory. It returns false if there is no room.
func (l *listing) note(dir string, what uint8) bool {
	old, ok := l.dirs[dir]
	switch {
	case ok && old&what == what:
		return true
	case !ok && len(l.dirs) == maxListing:
		return false
	case what == dirListed && old&dirUsed != 0:
		what |= dirInner
	}
	if l.dirs == nil {
		l.dirs = map[string]uint8{}
	}
	l.dirs[dir] = old | what
	return true
}

// picked returns the entry of a listed directory that was picked for a name to be found, or "".
func (l *listing) picked(name string) string {
	if !strings.HasPrefix(name, "/") {
		return ""
	}
	listed := func(name string) uint8 { return l.dirs[path.Dir(name)] }
	for listed(name)&dirListed == 0 {
		if name = path.Dir(name); name == "/" {
			return ""
		}
	}
	for listed(name)&dirInner != 0 && listed(path.Dir(name))&dirListed != 0 && path.Dir(name) != "/" {
		name = path.Dir(name)
	}
	return name
}

// use notes that a process has found a name, and records what it has picked for that.
func (t *tracer) use(p *task, name string) {
	if kernels(name) || name == "/" {
		return
	}
	if entry := p.known.picked(name); entry != "" && !compiled(name) {
		t.names.add(entry, execproto.Found|execproto.Picked)
	}
	if !p.known.note(path.Dir(name), dirUsed) {
		t.names.lack("too many directories")
	}
}

// compiled reports whether a name is in a cache of compiled Python. The caches of the agent's are
// removed before a verifier runs, so there is no choice between two.
func compiled(name string) bool { return strings.Contains(name, "/__pycache__/") }

// list notes that a process has read the entries of a directory.
func (t *tracer) list(p *task, dir string) {
	t.names.add(dir, execproto.Found|execproto.Listed)
	if !kernels(dir) && !p.known.note(dir, dirListed) {
		t.names.lack("too many directories")
	}
}

// inherit gives a new task what its process, or its parent, knows.
func (t *tracer) inherit(tid int, p *task) {
	p.known = &listing{}
	b, err := os.ReadFile("/proc/" + strconv.Itoa(tid) + "/status")
	if err != nil {
		return // it was killed
	}
	for _, key := range []string{"\nPPid:\t", "\nTgid:\t"} {
		_, rest, ok := strings.Cut(string(b), key)
		number, _, _ := strings.Cut(rest, "\n")
		if id, err := strconv.Atoi(number); ok && err == nil && id != tid && t.tasks[id] != nil {
			p.known = t.tasks[id].known
		}
	}
}
