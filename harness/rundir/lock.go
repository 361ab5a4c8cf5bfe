package rundir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/evalrun/evalrun/internal/fsutil"
)

// An Owner is a process that works in a run folder.
type Owner struct {
	Host  string    `json:"host"`
	Boot  string    `json:"boot,omitempty"` // boot ID of the kernel; a PID is only valid for one boot
	PID   int       `json:"pid"`
	Since time.Time `json:"since"`
}

// InUse says which process works in a run folder. It matches ErrInUse.
type InUse struct {
	Path  string
	Owner Owner // zero if the lock file did not say
}

func (e *InUse) Error() string {
	who := "another process"
	if o := e.Owner; o.PID > 0 {
		where := "on " + o.Host
		if self := self(); o.Host == self.Host && o.Boot == self.Boot {
			where = "on this machine"
		}
		who = fmt.Sprintf("process %d %s, since %s", o.PID, where, o.Since.Format(time.RFC3339))
	}
	return fmt.Sprintf("%v: %s works in %s; wait for its end, or stop it (a signal makes it finish what runs) "+
		"and try again", ErrInUse, who, e.Path)
}

func (e *InUse) Is(target error) bool { return target == ErrInUse }

// A lock is a kernel lock (flock), which is released when its process ends in any way. The file's
// content tells people who holds it, and tells the next holder whether the last one shut down in
// order.
type lock struct{ f *os.File }

func (d *Dir) acquire() error {
	name := d.file(lockFile)
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return unwritable(d.path, err)
	}
	err = fsutil.Lock(f)
	owner, me := readOwner(f), self()
	for range 20 {
		// Retry, because Holder takes the lock for a moment to test it, even if nobody holds it.
		if !errors.Is(err, fsutil.ErrLocked) || owner.PID > 0 &&
			(owner.Host != me.Host || owner.Boot == me.Boot && alive(owner.PID)) {
			break
		}
		time.Sleep(10 * time.Millisecond)
		err, owner = fsutil.Lock(f), readOwner(f)
	}
	switch {
	case errors.Is(err, fsutil.ErrLocked):
		f.Close()
		return &InUse{d.path, owner}
	case errors.Is(err, errors.ErrUnsupported):
		// The file system has no locks, so the file's content has to do. Whether an owner is still
		// alive can be checked only on its own machine.
		same := owner.Host == me.Host && owner.Boot == me.Boot
		switch {
		case owner.PID > 0 && same && alive(owner.PID) && owner.PID != me.PID:
			f.Close()
			return &InUse{d.path, owner}
		case owner.PID > 0 && owner.Host != me.Host:
			f.Close()
			return fmt.Errorf("%w (this disk has no locks; if that process is gone, remove %s)", &InUse{d.path, owner},
				name)
		}
	case err != nil:
		f.Close()
		return fmt.Errorf("run folder %s: locking: %w", d.path, err)
	}
	if owner.PID > 0 {
		d.previous = &owner
	}
	data, err := json.Marshal(me)
	if err == nil {
		err = f.Truncate(0)
	}
	if err == nil {
		_, err = f.WriteAt(append(data, '\n'), 0)
	}
	if err != nil {
		f.Close()
		return unwritable(d.path, err)
	}
	d.lock = &lock{f}
	return nil
}

// release shuts down in order and leaves an empty file. It does not remove the file, because
// another process may have it open and be waiting.
func (l *lock) release() error {
	err := l.f.Truncate(0)
	if cerr := l.f.Close(); err == nil {
		err = cerr
	}
	return err
}

// Holder returns the process that works in a run folder. ok is false if there is none.
func Holder(path string) (Owner, bool) {
	f, err := os.Open((&Dir{path: path}).file(lockFile))
	if err != nil {
		return Owner{}, false
	}
	defer f.Close()
	o := readOwner(f)
	if o.PID == 0 {
		return o, false
	}
	switch err := fsutil.Lock(f); {
	case err == nil: // closing f releases the lock
		return o, false
	case errors.Is(err, fsutil.ErrLocked):
		return o, true
	}
	me := self()
	return o, o.Host != me.Host || o.Boot == me.Boot && alive(o.PID)
}

func readOwner(f *os.File) (o Owner) {
	data, err := io.ReadAll(io.NewSectionReader(f, 0, 4096))
	if err != nil || json.Unmarshal(data, &o) != nil {
		return Owner{}
	}
	return o
}

func self() Owner {
	host, _ := os.Hostname()
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return Owner{Host: host, Boot: strings.TrimSpace(string(boot)), PID: os.Getpid(),
		Since: time.Now().UTC().Truncate(time.Second)}
}

func alive(pid int) bool {
	err := syscall.Kill(pid, 0)
	return err == nil || err == syscall.EPERM
}
