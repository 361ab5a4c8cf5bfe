package server

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/evalrun/evalrun/internal/execproto"
)

// clearDirs replaces each directory by an empty one that belongs to owner ("": the user that
// commands run as by default) and that nobody else can write to. It returns a remark for each: ""
// for a plain directory, a mount from the beginning, or nothing.
func (sv *server) clearDirs(owner string, dirs []string) (execproto.Enc, error) {
	var of account
	if owner == "" {
		owner = sv.cfg.User
	}
	if owner != "" {
		var err error
		if of, err = lookup(owner); err != nil {
			return nil, err
		}
	}
	var remarks []string
	for _, d := range dirs {
		remark, err := sv.clearDir(clean(d), of)
		if err != nil {
			return nil, &fs.PathError{Op: "clear", Path: d, Err: err}
		}
		remarks = append(remarks, remark)
	}
	e := execproto.OK()
	e.Strings(remarks)
	return e, nil
}

func (sv *server) clearDir(dir string, of account) (remark string, err error) {
	root := sv.cfg.Root
	if root == "" {
		root = "/"
	}
	fd, err := unix.Open(root, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer func() { unix.Close(fd) }()
	rel := strings.Trim(dir, "/")
	if rel == "" {
		return "", errors.New("the root cannot be cleared")
	}
	parts := strings.Split(rel, "/")
	for _, name := range parts[:len(parts)-1] {
		// Replace a component of the path that is a link or no directory: it leads elsewhere, or
		// nowhere.
		r, next, err := folder(fd, name)
		if err != nil {
			return "", err
		}
		unix.Close(fd)
		fd = next
		if r != "" && remark == "" {
			remark = "its parent was " + r
		}
	}
	base := parts[len(parts)-1]
	var s unix.Stat_t
	switch err := unix.Fstatat(fd, base, &s, unix.AT_SYMLINK_NOFOLLOW); {
	case err == unix.ENOENT:
		return remark, newDir(fd, base, of)
	case err != nil:
		return "", err
	}
	if r := kindOf(s.Mode); r != "" {
		remark = "it was " + r
	}
	left := 1_000_000
	if err := removeAll(fd, base, &left, 0); err == nil {
		return remark, newDir(fd, base, of)
	}
	// It is a mount, or too large or too deep to be removed: rename it, if possible.
	aside := "." + base + "-" + time.Now().Format("150405.000000000")
	if unix.Renameat(fd, base, fd, aside) == nil {
		unix.Fchmodat(fd, aside, 0, 0)
		return "it could not be emptied and was moved aside", newDir(fd, base, of)
	}
	sub, err := unix.Openat(fd, base, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(sub)
	if n, err := count(sub); err != nil || n > 0 {
		return "", errors.New("it cannot be emptied")
	}
	if at := sv.path(dir); remark == "" && (sv.mounted[at] == "" || sv.mounted[at] != mounts()[at]) {
		remark = "it was a mount"
	}
	return remark, owned(sub, of)
}

// mounts returns the IDs of all mounts by mount point. Of several at one place, the topmost counts.
func mounts() map[string]string {
	all := map[string]string{}
	text, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 4 {
			all[octal.Replace(f[4])] = f[0]
		}
	}
	return all
}

// octal decodes the kernel's escapes in fields of mountinfo.
var octal = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// newDir makes a directory that only its owner can write to.
func newDir(fd int, name string, of account) error {
	if err := unix.Mkdirat(fd, name, 0o700); err != nil {
		return err
	}
	dir, err := unix.Openat(fd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	return owned(dir, of)
}

// owned changes the owner of a directory. Where only one user is mapped, it stays ours.
func owned(dir int, of account) error {
	mode := uint32(0o755)
	if err := unix.Fchown(dir, of.uid, of.gid); err != nil {
		mode = 0o777
	}
	return unix.Fchmod(dir, mode)
}

// folder opens the directory name in fd. If it does not exist or is something else, folder makes a
// new one.
func folder(fd int, name string) (remark string, next int, err error) {
	var s unix.Stat_t
	if err := unix.Fstatat(fd, name, &s, unix.AT_SYMLINK_NOFOLLOW); err == nil {
		remark = kindOf(s.Mode)
	}
	next, err = step(fd, name, 0o755)
	return remark, next, err
}

// kindOf describes a file type other than a directory.
func kindOf(mode uint32) string {
	switch mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return ""
	case unix.S_IFLNK:
		return "a link"
	case unix.S_IFREG:
		return "a file"
	case unix.S_IFIFO:
		return "a pipe"
	case unix.S_IFSOCK:
		return "a socket"
	}
	return "a device"
}

// removeAll removes name from the directory fd recursively. It follows no links, and gives up after
// *left entries or when it is too deep.
func removeAll(fd int, name string, left *int, depth int) error {
	if *left--; *left < 0 || depth > 900 {
		return errors.New("too much")
	}
	err := unix.Unlinkat(fd, name, 0)
	if err == nil || err == unix.ENOENT {
		return nil
	}
	if err != unix.EISDIR && err != unix.EPERM {
		return err
	}
	sub, err := unix.Openat(fd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(sub), name)
	defer f.Close()
	for {
		names, err := f.Readdirnames(1000)
		for _, n := range names {
			if err := removeAll(sub, n, left, depth+1); err != nil {
				return err
			}
		}
		if len(names) == 0 {
			break
		}
		if err != nil {
			break
		}
		// Removing moves the other entries, so start again.
		if _, err := f.Seek(0, 0); err != nil {
			return err
		}
	}
	if err := unix.Unlinkat(fd, name, unix.AT_REMOVEDIR); err != nil && err != unix.ENOENT {
		return err
	}
	return nil
}

func count(fd int) (int, error) {
	sub, err := unix.Openat(fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	f := os.NewFile(uintptr(sub), ".")
	defer f.Close()
	names, err := f.Readdirnames(1)
	if len(names) == 0 {
		return 0, nil
	}
	return len(names), err
}

// removeFiles removes single files, some of which may not exist. It follows no links in their
// paths.
func (sv *server) removeFiles(names []string) error {
	for _, n := range names {
		n = clean(n)
		dir, err := unix.Openat2(unix.AT_FDCWD, path.Dir(sv.path(n)),
			&unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_MAGICLINKS})
		if err != nil {
			continue
		}
		err = unix.Unlinkat(dir, path.Base(n), 0)
		unix.Close(dir)
		if err != nil && err != unix.ENOENT && err != unix.EISDIR {
			return &fs.PathError{Op: "remove", Path: n, Err: err}
		}
	}
	return nil
}
