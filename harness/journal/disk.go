package journal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/evalrun/evalrun/harness/record"
)

// Disk space. While free space is above the low-water mark, there are no restrictions. Below it,
// Room returns an error, so that no new work starts, while running work may finish. When a write or
// a sync finds the disk or quota full, the ballast file is removed to make room for the entries in
// flight. The next such failure is permanent.

// Room returns nil if new work may start. Otherwise it returns an error that matches
// record.ErrLowSpace, or the journal's first failure. It checks the disk at most once per second.
func (j *Journal) Room() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err != nil {
		return j.err
	}
	if now := time.Now(); now.Sub(j.looked) >= time.Second || j.looked.IsZero() {
		j.looked, j.low = now, j.lookLocked()
	}
	return j.low
}

func (j *Journal) lookLocked() error {
	run := filepath.Dir(j.dir)
	if j.noBallast {
		return fmt.Errorf("%w for %s: the reserve is used up; free some, and run `evalrun resume`", record.ErrLowSpace,
			run)
	}
	free, total, ok := diskSpace(j.dir)
	if !ok || j.opts.LowWater < 0 {
		return nil
	}
	mark := lowWater(j.opts.LowWater, total)
	if free >= mark {
		return nil
	}
	return fmt.Errorf("%w for %s: %d MiB are left, and work begins above %d MiB; free some, and run `evalrun resume`",
		record.ErrLowSpace, run, free>>20, mark>>20)
}

// lowWater returns the low-water mark of a disk in bytes. It is capped, because a percentage alone
// would waste much space on a large disk.
func lowWater(configured int64, total uint64) uint64 {
	if configured > 0 {
		return uint64(configured)
	}
	return max(256<<20, min(total/100, 5<<30))
}

// layBallast reserves space on the disk. A failure is not an error here; Room reports it.
func (j *Journal) layBallast() {
	if j.opts.Ballast < 0 {
		return
	}
	name := filepath.Join(j.dir, ballastFile)
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o644)
	if err == nil {
		err = allocate(f, j.opts.Ballast)
		f.Close()
	}
	if err != nil {
		os.Remove(name)
		j.noBallast = full(err)
	}
}

// full reports whether an error means that the disk or a quota is full.
func full(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

// dropBallast frees the reserved space. It returns false if that was already done.
func (j *Journal) dropBallast() bool {
	err := os.Remove(filepath.Join(j.dir, ballastFile))
	j.mu.Lock()
	j.noBallast = true
	j.looked = time.Time{}
	j.mu.Unlock()
	return err == nil
}

// write writes all of p at off.
func (j *Journal) write(f file, p []byte, off int64) error {
	for len(p) > 0 {
		n, err := f.WriteAt(p, off)
		p, off = p[n:], off+int64(n)
		switch {
		case err == nil && n == 0:
			return errors.New("journal: a write took nothing")
		case full(err) && j.dropBallast():
		case err != nil:
			return j.explain(err)
		}
	}
	return nil
}

// explain adds to a write error what the user can do about it.
func (j *Journal) explain(err error) error {
	run := filepath.Dir(j.dir)
	if full(err) {
		return fmt.Errorf("journal: disk full: %w; free space for %s and run `evalrun resume`", err, run)
	}
	return fmt.Errorf("journal: writing failed, and nothing after the last sync is certain: %w; look after the disk "+
		"of %s and run `evalrun resume`", err, run)
}

// fill implements allocate on file systems that do not support it, by writing data.
func fill(f *os.File, size int64) error {
	b := make([]byte, 1<<20)
	for i := range b {
		b[i] = byte(i * 7) // avoids holes and compressible or deduplicated blocks
	}
	for off := int64(0); off < size; off += int64(len(b)) {
		if _, err := f.WriteAt(b[:min(int64(len(b)), size-off)], off); err != nil {
			return err
		}
	}
	return nil
}
