package browsers

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/evalrun/evalrun/internal/isolate"
)

// Paths of the host that a browser sees, read-only. Of /etc: fonts, certificates, time zone and
// libraries.
var (
	systemDirs = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt"}
	etcPaths   = []string{"/etc/ld.so.cache", "/etc/localtime", "/etc/timezone", "/etc/nsswitch.conf",
		"/etc/mime.types", "/etc/fonts", "/etc/alternatives",
		"/etc/ssl/certs", "/etc/pki/tls/certs", "/etc/pki/ca-trust", "/etc/ca-certificates", "/var/cache/fontconfig"}
)

// scratchSize bounds what the browser writes outside of its folder, which includes shared memory.
const scratchSize = 8 << 30

// layout returns the file system of a browser: system paths, and the writable parts of its folder.
// mounts are the descriptors that the entries refer to.
func layout(dir, path string, files []string) (l *isolate.Layout, mounts []*os.File) {
	l = &isolate.Layout{Hostname: "browser", Disk: scratchSize, Nest: true}
	made := map[string]bool{"/": true}
	var parents func(p string)
	parents = func(p string) {
		if d := filepath.Dir(p); !made[d] {
			parents(d)
			made[d] = true
			l.Entries = append(l.Entries, isolate.Entry{Kind: isolate.Dir, Path: d, Mode: 0o755})
		}
	}
	add := func(e isolate.Entry) {
		if !made[e.Path] {
			parents(e.Path)
			made[e.Path] = true
			l.Entries = append(l.Entries, e)
		}
	}
	add(isolate.Entry{Kind: isolate.Dir, Path: "/tmp", Mode: 0o1777})
	for name, text := range map[string]string{
		"/etc/hosts":       "127.0.0.1\tlocalhost\n",
		"/etc/resolv.conf": "# names are resolved by the proxies\n",
		"/etc/passwd":      "browser:x:1000:1000:browser:/tmp:/usr/sbin/nologin\n",
		"/etc/group":       "browser:x:1000:\n",
	} {
		add(isolate.Entry{Kind: isolate.File, Path: name, Data: text, Mode: 0o644})
	}
	show := func(p string) {
		fi, err := os.Lstat(p)
		if err != nil {
			return
		}
		if fi.Mode()&os.ModeSymlink != 0 {
			if to, err := os.Readlink(p); err == nil {
				add(isolate.Entry{Kind: isolate.Link, Path: p, Data: to})
			}
			return
		}
		add(isolate.Entry{Kind: isolate.Bind, Path: p, Data: p})
	}
	for _, p := range slices.Concat(systemDirs, etcPaths) {
		show(p)
	}
	given := func(p string, mode uint32) {
		e := isolate.Entry{Kind: isolate.Bind, Path: p, Data: p}
		if mode&0o222 != 0 {
			e.Kind = isolate.Write
		}
		if f := detachedMount(p); f != nil { // the browser's user may not be able to enter the folders above
			e = isolate.Entry{Kind: isolate.Mount, Path: p, Mode: mode, Size: int64(firstMountFD + len(mounts))}
			mounts = append(mounts, f)
		}
		add(e)
	}
	if real, err := filepath.EvalSymlinks(path); err == nil &&
		!slices.ContainsFunc(systemDirs, func(d string) bool { return strings.HasPrefix(real, d+"/") }) {
		given(filepath.Dir(real), 0o555) // a browser outside of the system paths
	}
	for _, f := range files {
		if f, err := filepath.Abs(f); err == nil {
			given(f, 0o555)
		}
	}
	for _, d := range []string{"profile", "files"} {
		given(filepath.Join(dir, d), 0o755)
	}
	return l, mounts
}

// firstMountFD is the descriptor of the first mount in the browser's process, after the socket.
const firstMountFD = 6

// detachedMount returns a detached copy of a folder's mount (open_tree), or nil. Only root can make
// one.
func detachedMount(path string) *os.File {
	if os.Geteuid() != 0 {
		return nil
	}
	fd, err := unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return nil
	}
	return os.NewFile(uintptr(fd), path)
}
