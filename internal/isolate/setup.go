package isolate

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// failed names the operation that failed, in an error for the host.
func failed(what string, err error) error { return errors.New(what + ": " + err.Error()) }

// Setup builds the root and changes into it. The process must be in new user, mount, pid, net, ipc,
// uts and cgroup namespaces, with all capabilities in them.
//
// Nothing of the host stays reachable: after the last step the namespace has no mount of the host
// except the read-only binds, and the process has no descriptor of it except the channel.
func Setup(b []byte) error {
	l, err := decodeLayout(b)
	if err != nil {
		return err
	}
	unix.Umask(0)
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return failed("making mounts private", err)
	}
	// The new root is mounted over an existing folder and becomes "/" at once, with the host's root
	// in /old. So nothing has to exist on the host, and the source of a bind may lie below the
	// covered folder.
	base := "/tmp"
	if fi, err := os.Stat(base); err != nil || !fi.IsDir() {
		base = "/usr"
	}
	size := strconv.FormatInt(l.Disk, 10)
	if err := unix.Mount("tmpfs", base, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755,size="+size); err != nil {
		return failed("mounting the root", err)
	}
	if err := unix.Chdir(base); err != nil {
		return failed("entering the root", err)
	}
	if err := unix.Mkdir("old", 0o700); err != nil {
		return failed("making /old", err)
	}
	if err := unix.PivotRoot(".", "old"); err != nil {
		return failed("pivot_root", err)
	}
	if err := unix.Chdir("/"); err != nil {
		return failed("entering the root", err)
	}
	root := ""
	if l.Image != "" || l.ImageFD != 0 {
		if err := mountImage(&l); err != nil {
			return err
		}
		root = "/m"
	}
	if err := makeProc(root, &l); err != nil {
		return err
	}
	if err := makeDev(root); err != nil {
		return err
	}
	for _, e := range l.Entries {
		if err := makeEntry(root, e); err != nil {
			return err
		}
	}
	if root != "" {
		if err := unix.Chdir(root); err != nil {
			return failed("entering the image", err)
		}
		// The old root ends up on top of the new one and is unmounted with everything below it.
		if err := unix.PivotRoot(".", "."); err != nil {
			return failed("pivot_root to the image", err)
		}
		if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
			return failed("leaving the host's root", err)
		}
	} else {
		if err := unix.Unmount("/old", unix.MNT_DETACH); err != nil {
			return failed("leaving the host's root", err)
		}
		if err := unix.Rmdir("/old"); err != nil {
			return failed("removing /old", err)
		}
	}
	if err := unix.Chdir("/"); err != nil {
		return failed("entering the root", err)
	}
	if l.Hostname != "" {
		if err := unix.Sethostname([]byte(l.Hostname)); err != nil {
			return failed("setting the host name", err)
		}
	}
	if err := loopback(); err != nil {
		return failed("bringing the loopback up", err)
	}
	unix.Umask(0o022)
	return nil
}

// mountImage mounts a writable view of an unpacked root at /m. All paths are relative, because an
// overlay shows the paths it was mounted with to every process inside.
func mountImage(l *Layout) error {
	for _, d := range []string{"l", "u", "w", "m"} {
		if err := unix.Mkdir(d, 0o755); err != nil {
			return failed("making /"+d, err)
		}
	}
	if l.ImageFD != 0 {
		if err := unix.MoveMount(l.ImageFD, "", unix.AT_FDCWD, "l", unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
			return failed("attaching the image", err)
		}
		unix.Close(l.ImageFD)
	} else if err := unix.Mount("old"+l.Image, "l", "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return failed("binding the image", err)
	}
	if err := unix.Mount("overlay", "m", "overlay", unix.MS_NOSUID|unix.MS_NODEV,
		"lowerdir=l,upperdir=u,workdir=w,userxattr"); err != nil {
		return failed("mounting the image", err)
	}
	return nil
}

func makeEntry(root string, e Entry) error {
	p := root + e.Path
	switch e.Kind {
	case Dir:
		err := unix.Mkdir(p, e.Mode)
		if err == unix.EEXIST {
			return nil
		}
		if err != nil {
			return failed("making "+e.Path, err)
		}
	case File:
		unix.Unlink(p)
		fd, err := unix.Open(p, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, e.Mode)
		if err != nil {
			return failed("making "+e.Path, err)
		}
		b := []byte(e.Data)
		for len(b) > 0 {
			n, err := unix.Write(fd, b)
			if err != nil {
				unix.Close(fd)
				return failed("writing "+e.Path, err)
			}
			b = b[n:]
		}
		unix.Close(fd)
	case Link:
		if err := unix.Symlink(e.Data, p); err != nil && err != unix.EEXIST {
			return failed("linking "+e.Path, err)
		}
	case Over:
		if err := over("/old"+e.Data, p); err == nil {
			return nil
		}
		// An old kernel, too many stacked overlays, or another mount below.
		return bind("/old"+e.Data, p, true)
	case Bind:
		return bind("/old"+e.Data, p, true)
	case Write:
		return bind("/old"+e.Data, p, false)
	case Mount:
		if err := unix.Mkdir(p, 0o755); err != nil && err != unix.EEXIST {
			return failed("making "+e.Path, err)
		}
		if err := unix.MoveMount(int(e.Size), "", unix.AT_FDCWD, p, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
			return failed("attaching "+e.Path, err)
		}
		unix.Close(int(e.Size))
		if e.Mode&0o222 == 0 {
			return Seal(p)
		}
	case Tmpfs:
		if err := unix.Mkdir(p, 0o755); err != nil && err != unix.EEXIST {
			return failed("making "+e.Path, err)
		}
		opt := "mode=" + strconv.FormatUint(uint64(e.Mode), 8)
		if e.Size > 0 {
			opt += ",size=" + strconv.FormatInt(e.Size, 10)
		}
		if err := unix.Mount("tmpfs", p, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, opt); err != nil {
			return failed("mounting "+e.Path, err)
		}
	}
	return nil
}

// over creates dst and shows the folder src there through an overlay of it alone. The pages are
// shared, but for locks and watches the files are different ones.
func over(src, dst string) error {
	if err := unix.Mkdir(dst, 0o755); err != nil && err != unix.EEXIST {
		return err
	}
	// A read-only overlay needs two layers. The second is the empty folder that it covers.
	return unix.Mount("overlay", dst, "overlay", unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, "lowerdir="+src+":"+dst)
}

// bind creates dst and shows src there.
func bind(src, dst string, readOnly bool) error {
	var st unix.Stat_t
	if err := unix.Stat(src, &st); err != nil {
		return failed("looking at "+src[len("/old"):], err)
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		if err := unix.Mkdir(dst, 0o755); err != nil && err != unix.EEXIST {
			return failed("making "+dst, err)
		}
	} else if err := touch(dst); err != nil {
		return failed("making "+dst, err)
	}
	if err := unix.Mount(src, dst, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return failed("binding "+dst, err)
	}
	if !readOnly {
		return nil
	}
	return Seal(dst)
}

func touch(p string) error {
	fd, err := unix.Open(p, unix.O_WRONLY|unix.O_CREAT|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o644)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

// Seal makes a mount and all mounts below it read-only.
func Seal(p string) error {
	err := unix.MountSetattr(unix.AT_FDCWD, p, unix.AT_RECURSIVE, &unix.MountAttr{
		Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV,
	})
	if err == unix.ENOSYS { // before Linux 5.12: only this mount, with the flags that must not be removed
		var fs unix.Statfs_t
		if err := unix.Statfs(p, &fs); err != nil {
			return failed("looking at "+p, err)
		}
		keep := uintptr(fs.Flags) & (unix.MS_NOEXEC | unix.MS_NOATIME | unix.MS_NODIRATIME | unix.MS_RELATIME)
		err = unix.Mount("", p, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|keep, "")
	}
	if err != nil {
		return failed("making "+p+" read-only", err)
	}
	return nil
}

// procHidden lists the files of /proc that tell about the host and are readable by everyone. Files
// that act on the machine (sysrq-trigger, irq, bus, kcore, timer_list …) belong to the outer root
// and need no cover, because root inside is another user. Settings below sys/ are different: some
// of them belong to our own namespaces. Each mount costs every sandbox a few µs.
var procHidden = []string{"cmdline", "keys", "swaps"}

func makeProc(root string, l *Layout) error {
	p := root + "/proc"
	if err := unix.Mkdir(p, 0o555); err != nil && err != unix.EEXIST {
		return failed("making /proc", err)
	}
	if err := unix.Mount("proc", p, "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		if err == unix.EPERM {
			return errors.New("mounting /proc: not permitted, as parts of the host's own /proc are covered (a " +
				"container engine does that)")
		}
		return failed("mounting /proc", err)
	}
	// Forbid nested user namespaces: they give capabilities over new kernel objects. The system
	// call filter forbids them too, but this also covers the calls that it cannot inspect.
	if fd, err := unix.Open(p+"/sys/user/max_user_namespaces", unix.O_WRONLY|unix.O_CLOEXEC, 0); err == nil && l.Nest {
		unix.Close(fd)
	} else if err == nil {
		unix.Write(fd, []byte{'0'})
		unix.Close(fd)
	}
	if l.Share > 1 {
		for _, n := range []string{"instances", "watches"} {
			all, err := os.ReadFile(p + "/sys/fs/inotify/max_user_" + n)
			if err != nil {
				continue // the kernel does not have this file
			}
			limit, _ := strconv.ParseUint(string(bytes.TrimSpace(all)), 10, 64)
			err = os.WriteFile(p+"/sys/user/max_inotify_"+n, []byte(strconv.FormatUint(max(1, limit/l.Share), 10)), 0)
			if err != nil {
				return failed("limiting inotify "+n, err)
			}
		}
	}
	// Limit System V segments to the size of the disk. They outlive their processes and are in no
	// file system of the sandbox. (Linux before 5.19 reserves this setting for its own root.)
	if fd, err := unix.Open(p+"/sys/kernel/shmall", unix.O_WRONLY|unix.O_CLOEXEC, 0); err == nil && l.Disk > 0 {
		unix.Write(fd, []byte(strconv.FormatInt(l.Disk/int64(os.Getpagesize()), 10)))
		unix.Close(fd)
	}
	for _, n := range procHidden {
		err := unix.Mount("/old/dev/null", p+"/"+n, "", unix.MS_BIND, "")
		if err != nil && err != unix.ENOENT {
			return failed("covering /proc/"+n, err)
		}
	}
	// It shows how busy this machine is, to the microsecond.
	err := unix.Mount("tmpfs", p+"/pressure", "tmpfs", unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC,
		"size=4k,mode=555")
	if err != nil && err != unix.ENOENT {
		return failed("covering /proc/pressure", err)
	}
	if err := unix.Mount(p+"/sys", p+"/sys", "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return failed("binding /proc/sys", err)
	}
	return Seal(p + "/sys")
}

var devices = []string{"null", "zero", "full", "random", "urandom", "tty"}

func makeDev(root string) error {
	p := root + "/dev"
	if err := unix.Mkdir(p, 0o755); err != nil && err != unix.EEXIST {
		return failed("making /dev", err)
	}
	if root != "" { // regardless of what the image has there
		if err := unix.Mount("tmpfs", p, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755,size=64k"); err != nil {
			return failed("mounting /dev", err)
		}
	}
	for _, n := range devices {
		if err := touch(p + "/" + n); err != nil {
			return failed("making /dev/"+n, err)
		}
		if err := unix.Mount("/old/dev/"+n, p+"/"+n, "", unix.MS_BIND, ""); err != nil {
			return failed("binding /dev/"+n, err)
		}
	}
	for _, d := range []struct {
		name string
		mode uint32
	}{{"pts", 0o755}, {"shm", 0o1777}} {
		if err := unix.Mkdir(p+"/"+d.name, d.mode); err != nil && err != unix.EEXIST {
			return failed("making /dev/"+d.name, err)
		}
	}
	// The kernel has 4096 terminals for all machines together and gives them out first come, first
	// served.
	if err := unix.Mount("devpts", p+"/pts", "devpts", unix.MS_NOSUID|unix.MS_NOEXEC,
		"newinstance,ptmxmode=0666,mode=620,max=512"); err != nil {
		return failed("mounting /dev/pts", err)
	}
	for _, l := range [][2]string{{"pts/ptmx", "ptmx"}, {"/proc/self/fd", "fd"}, {"fd/0", "stdin"}, {"fd/1", "stdout"},
		{"fd/2", "stderr"}} {
		if err := unix.Symlink(l[0], p+"/"+l[1]); err != nil && err != unix.EEXIST {
			return failed("linking /dev/"+l[1], err)
		}
	}
	return nil
}

// loopback brings the interface lo up.
func loopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var ifr struct {
		name  [16]byte
		flags uint16
		_     [22]byte
	}
	copy(ifr.name[:], "lo")
	ifr.flags = unix.IFF_UP | unix.IFF_RUNNING
	if _, _, e := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), unix.SIOCSIFFLAGS,
		uintptr(unsafe.Pointer(&ifr))); e != 0 {
		return e
	}
	return nil
}
