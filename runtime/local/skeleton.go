package local

import (
	"os"
	"path/filepath"
	"sort"
	"strings"

	"github.com/evalrun/evalrun/internal/isolate"
)

// systemDirs are the directories of this machine that a sandbox can read, if they exist. Links stay
// the same links.
var systemDirs = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"}

// An allow-list of /etc: what programs need to be found, to draw text, to check certificates and to
// tell the time. Nothing that could contain a secret: only the public parts of /etc/ssl.
var (
	etcFiles = []string{"ld.so.cache", "localtime", "timezone", "nsswitch.conf", "matplotlibrc", "services",
		"protocols", "mime.types", "os-release", "debian_version",
		"ssl/openssl.cnf", "pki/tls/cert.pem", "pki/tls/openssl.cnf", "bash.bashrc", "profile", "inputrc"}
	etcDirs = []string{"alternatives", "fonts", "ssl/certs", "pki/tls/certs", "pki/ca-trust"}
	// Java runtimes need these: their directory in /usr is full of links to them.
	etcGlobs = []string{"java-*"}
)

// maxEtcFile is the largest file that is copied; larger ones are bind mounted. A mount costs about
// as much as writing a few pages.
const maxEtcFile = 4 << 10

const resolvConf = "# no network\n"

// hostsFile returns the content of /etc/hosts.
func hostsFile(hostname string) string {
	return "127.0.0.1\tlocalhost " + hostname + "\n::1\tlocalhost ip6-localhost ip6-loopback\n"
}

// accounts are /etc/passwd and /etc/group: accounts that every distribution has, with Debian's
// numbers.
const (
	passwdFile = `root:x:0:0:root:/root:/bin/sh
daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin
bin:x:2:2:bin:/bin:/usr/sbin/nologin
mail:x:8:8:mail:/var/mail:/usr/sbin/nologin
www-data:x:33:33:www-data:/var/www:/usr/sbin/nologin
nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin
`
	groupFile = `root:x:0:
daemon:x:1:
bin:x:2:
tty:x:5:
mail:x:8:
www-data:x:33:
nogroup:x:65534:
`
)

// common returns what every root has, whether from this machine or from an image.
func common(hostname string) []isolate.Entry {
	return []isolate.Entry{
		{Kind: isolate.Dir, Path: "/etc", Mode: 0o755},
		{Kind: isolate.File, Path: "/etc/hosts", Data: hostsFile(hostname), Mode: 0o644},
		{Kind: isolate.File, Path: "/etc/hostname", Data: hostname + "\n", Mode: 0o644},
		{Kind: isolate.File, Path: "/etc/resolv.conf", Data: resolvConf, Mode: 0o644},
		{Kind: isolate.Dir, Path: "/tmp", Mode: 0o1777},
		{Kind: isolate.Dir, Path: "/run", Mode: 0o755},
		{Kind: isolate.Dir, Path: "/root", Mode: 0o700},
	}
}

// skeleton returns the default root. It does not depend on the sandbox.
func skeleton(hostname string) []isolate.Entry {
	es := common(hostname)
	dir := func(mode uint32, paths ...string) {
		for _, p := range paths {
			es = append(es, isolate.Entry{Kind: isolate.Dir, Path: p, Mode: mode})
		}
	}
	dir(0o755, "/home", "/mnt", "/opt", "/srv", "/var", "/var/lib", "/var/log", "/var/cache")
	dir(0o1777, "/var/tmp", "/run/lock")
	es = append(es,
		isolate.Entry{Kind: isolate.Link, Path: "/var/run", Data: "/run"},
		isolate.Entry{Kind: isolate.Link, Path: "/var/lock", Data: "/run/lock"},
		isolate.Entry{Kind: isolate.Link, Path: "/etc/mtab", Data: "/proc/self/mounts"},
		isolate.Entry{Kind: isolate.File, Path: "/etc/passwd", Data: passwdFile, Mode: 0o644},
		isolate.Entry{Kind: isolate.File, Path: "/etc/group", Data: groupFile, Mode: 0o644},
	)
	for _, d := range systemDirs {
		fi, err := os.Lstat(d)
		if err != nil {
			continue
		}
		if fi.Mode()&os.ModeSymlink != 0 {
			if target, err := os.Readlink(d); err == nil {
				es = append(es, isolate.Entry{Kind: isolate.Link, Path: d, Data: target})
			}
		} else if fi.IsDir() {
			es = append(es, isolate.Entry{Kind: isolate.Over, Path: d, Data: d})
		}
	}
	made := map[string]bool{"/etc": true}
	parents := func(p string) {
		var missing []string
		for d := filepath.Dir(p); !made[d]; d = filepath.Dir(d) {
			missing, made[d] = append(missing, d), true
		}
		for i := len(missing) - 1; i >= 0; i-- {
			dir(0o755, missing[i])
		}
	}
	for _, n := range etcFiles {
		p := "/etc/" + n
		fi, err := os.Lstat(p)
		if err != nil {
			continue
		}
		if fi.Mode()&os.ModeSymlink != 0 {
			target, err := os.Readlink(p)
			if err == nil && (strings.HasPrefix(target, "/usr/") || strings.HasPrefix(target, "../usr/")) {
				parents(p)
				es = append(es, isolate.Entry{Kind: isolate.Link, Path: p, Data: target})
				continue
			}
			if fi, err = os.Stat(p); err != nil {
				continue
			}
		}
		if !fi.Mode().IsRegular() {
			continue
		}
		parents(p)
		if fi.Size() > maxEtcFile {
			es = append(es, isolate.Entry{Kind: isolate.Bind, Path: p, Data: p})
		} else if b, err := os.ReadFile(p); err == nil {
			es = append(es, isolate.Entry{Kind: isolate.File, Path: p, Data: string(b), Mode: 0o644})
		}
	}
	dirs := etcDirs
	for _, g := range etcGlobs {
		found, _ := filepath.Glob("/etc/" + g)
		sort.Strings(found)
		for _, p := range found {
			dirs = append(dirs, strings.TrimPrefix(p, "/etc/"))
		}
	}
	for _, n := range dirs {
		p := "/etc/" + n
		if fi, err := os.Lstat(p); err != nil || !fi.IsDir() {
			continue
		}
		parents(p)
		es = append(es, isolate.Entry{Kind: isolate.Bind, Path: p, Data: p})
	}
	return es
}
