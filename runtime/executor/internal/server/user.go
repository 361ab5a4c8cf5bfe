package server

import (
	"bufio"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// An unknownAccount error says that there is no such account.
type unknownAccount string

func (u unknownAccount) Error() string { return string(u) }
func (u unknownAccount) Unwrap() error { return fs.ErrNotExist }

type account struct {
	uid, gid int
	groups   []uint32
	home     string
}

// lookup finds an account as Docker does: "name", "uid", "name:group" or "uid:gid". Numbers need
// not be listed.
func lookup(spec string) (account, error) {
	name, group, hasGroup := strings.Cut(spec, ":")
	a := account{uid: -1, home: "/"}
	if n, err := strconv.Atoi(name); err == nil && n >= 0 {
		a.uid = n
	}
	listed := ""
	eachLine("/etc/passwd", func(f []string) bool {
		if len(f) < 6 {
			return true
		}
		uid, err1 := strconv.Atoi(f[2])
		gid, err2 := strconv.Atoi(f[3])
		if err1 != nil || err2 != nil || (f[0] != name && uid != a.uid) {
			return true
		}
		a.uid, a.gid, a.home, listed = uid, gid, f[5], f[0]
		return false
	})
	if a.uid < 0 && name == "root" {
		a.uid, a.home = 0, "/root"
	}
	if a.uid < 0 {
		return a, unknownAccount("no user " + strconv.Quote(name) + " in /etc/passwd")
	}
	gid := -1
	if hasGroup {
		if n, err := strconv.Atoi(group); err == nil && n >= 0 {
			gid = n
		}
	}
	eachLine("/etc/group", func(f []string) bool {
		if len(f) < 4 {
			return true
		}
		n, err := strconv.Atoi(f[2])
		if err != nil {
			return true
		}
		if hasGroup && f[0] == group {
			gid = n
		}
		for m := range strings.SplitSeq(f[3], ",") {
			if m != "" && m == listed && !hasGroup && len(a.groups) < 64 {
				a.groups = append(a.groups, uint32(n))
			}
		}
		return true
	})
	if hasGroup {
		if gid < 0 {
			return a, unknownAccount("no group " + strconv.Quote(group) + " in /etc/group")
		}
		a.gid = gid
	}
	return a, nil
}

// eachLine reads a file of fields separated by colons. Its content is hostile.
func eachLine(path string, f func([]string) bool) {
	r, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // it could be a pipe
	if err != nil {
		return
	}
	defer r.Close()
	if fi, err := r.Stat(); err != nil || !fi.Mode().IsRegular() {
		return
	}
	s := bufio.NewScanner(r)
	for n := 0; n < 10000 && s.Scan(); n++ {
		if !f(strings.Split(s.Text(), ":")) {
			return
		}
	}
}
