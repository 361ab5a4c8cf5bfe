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

// The disk. Above the low-water mark all is well. Below it Room says no, so that no work begins,
// while what runs may finish. When a write or a sync meets the end of the disk or of a quota, the
// ballast file gives back its room for the entries in flight; the next such failure is final.

// Room says whether new work may begin: nil, or an error that is record.ErrLowSpace, or what the
// journal ended with. It looks at the disk at most once a second.
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

// lowWater is the low-water mark of a disk. A share of it alone would make much of a large one
// useless.
func lowWater(configured int64, total uint64) uint64 {
	if configured > 0 {
		return uint64(configured)
	}
	return max(256<<20, min(total/100, 5<<30))
}

// layBallast takes room on the disk. That there is none is no error: Room says so.
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

// full says whether an error means that the disk or a quota has no room left.
func full(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

// dropBallast gives its room back; false when it is gone already.
func (j *Journal) dropBallast() bool {
	err := os.Remove(filepath.Join(j.dir, ballastFile))
	j.mu.Lock()
	j.noBallast = true
	j.looked = time.Time{}
	j.mu.Unlock()
	return err == nil
}

// write puts p at off whole, or says why not.
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

// explain says what to do about a failed write.
func (j *Journal) explain(err error) error {
	run := filepath.Dir(j.dir)
	if full(err) {
		return fmt.Errorf("journal: disk full: %w; free space for %s and run `evalrun resume`", err, run)
	}
	return fmt.Errorf("journal: writing failed, and nothing after the last sync is certain: %w; look after the disk "+
		"of %s and run `evalrun resume`", err, run)
}

// fill is allocate for file systems that cannot: the room is taken by writing.
func fill(f *os.File, size int64) error {
	b := make([]byte, 1<<20)
	for i := range b {
		b[i] = byte(i * 7) // not a hole, and not one repeated block
	}
	for off := int64(0); off < size; off += int64(len(b)) {
		if _, err := f.WriteAt(b[:min(int64(len(b)), size-off)], off); err != nil {
			return err
		}
	}
	return nil
}
