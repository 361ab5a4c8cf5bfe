package image

import (
	"crypto/sha256"
	"sync"
)

// A fileID is a file as the kernel tells it from all others: device, inode, size, time of
// modification and of change.
type fileID struct {
	dev, ino    uint64
	size        int64
	mtim, ctime int64
}

// sums remembers digests of files, so that a context which has not changed is not read for each
// trial again.
type sums struct {
	mu sync.Mutex
	m  map[fileID][sha256.Size]byte
}

// maxSums bounds what is remembered (some ten megabytes); beyond it everything is forgotten.
const maxSums = 100_000

func (s *sums) get(id fileID) (sum [sha256.Size]byte, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sum, ok = s.m[id]
	return sum, ok
}

func (s *sums) put(id fileID, sum [sha256.Size]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.m == nil || len(s.m) >= maxSums {
		s.m = map[fileID][sha256.Size]byte{}
	}
	s.m[id] = sum
}
