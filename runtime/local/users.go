package local

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// As root, each sandbox has outer users of its own. The kernel counts many resources per user
// (inotify instances, message queues, pending signals, pipes, descriptors in transit), wherever the
// user's processes are. So a sandbox that uses up all of them takes nothing from the others or from
// this machine.

// Count is the number of users of a sandbox: as many as images know.
const Count = 65536

// Ranges of users are where systemd looks for those of containers or, in a container with fewer
// users, where distributions begin to allocate them.
const (
	firstRange = 524288
	endRange   = 1879048192
	fewRange   = 100000
)

// block is the number of ranges that a process claims at once.
const block = 256

// A users allocates ranges of outer users to sandboxes. A process claims them in blocks, by locking
// a file for each block.
type users struct {
	first, n int // the first user, and the number of ranges; 0 if we cannot map any
	dir      string

	mu     sync.Mutex
	locks  []*os.File // of the blocks; closing a file releases its lock
	blocks []int
	taken  map[int]int // range → number of our sandboxes that use it
}

var outerUsers = sync.OnceValue(func() *users {
	u := &users{dir: filepath.Join(stateDir(), "users"), taken: map[int]int{}}
	if os.Geteuid() != 0 {
		return u
	}
	b, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		return u
	}
	for line := range strings.Lines(string(b)) {
		var inside, outside, n int
		if c, _ := fmt.Sscan(line, &inside, &outside, &n); c != 3 {
			continue
		}
		for _, first := range []int{firstRange, fewRange} {
			if end := min(inside+n, endRange); inside <= first && first+Count <= end && u.n == 0 {
				u.first, u.n = first, (end-first)/Count
			}
		}
	}
	return u
})

// manyUsers reports whether we can map a whole range. That needs root and, in a container, enough
// users.
func manyUsers() bool { return outerUsers().n > 0 }

// acquire returns the first user of a range that no other sandbox of this machine has. If there are
// not enough ranges, or their files cannot be locked, sandboxes share one: they stay isolated, but
// the kernel counts their resources together.
func (u *users) acquire() (base int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	r := u.free()
	u.taken[r]++
	return u.first + r*Count
}

func (u *users) free() int {
	for {
		for _, b := range u.blocks {
			for r := b * block; r < min((b+1)*block, u.n); r++ {
				if u.taken[r] == 0 {
					return r
				}
			}
		}
		if !u.claimBlock() {
			break
		}
	}
	for r := range u.n {
		if u.taken[r] == 0 {
			return r
		}
	}
	return rand.IntN(u.n)
}

// claimBlock adds a block that no other process holds.
func (u *users) claimBlock() bool {
	if os.MkdirAll(u.dir, 0o700) != nil {
		return false
	}
	for b := 0; b*block < u.n; b++ {
		f, err := os.OpenFile(filepath.Join(u.dir, fmt.Sprint(b)), os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return false
		}
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			u.locks, u.blocks = append(u.locks, f), append(u.blocks, b)
			return true
		}
		f.Close()
	}
	return false
}

// lock returns the file that claims a range, or nil. The range stays claimed as long as some process
// has it open.
func (u *users) lock(base int) *os.File {
	u.mu.Lock()
	defer u.mu.Unlock()
	if i := slices.Index(u.blocks, (base-u.first)/Count/block); i >= 0 {
		return u.locks[i]
	}
	return nil
}

// release releases a range that acquire returned.
func (u *users) release(base int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	r := (base - u.first) / Count
	if u.taken[r]--; u.taken[r] == 0 {
		delete(u.taken, r)
	}
}
