package image

import (
	"crypto/sha256"
	"sync"
)

// A fileID identifies a version of a file: device, inode, size, time of modification and of change.
type fileID struct {
	dev, ino    uint64
	size        int64
	mtim, ctime int64
}

// digestCache caches digests of files, so that an unchanged context is not read for each trial.
type digestCache struct {
	mu sync.Mutex
	m  map[fileID][sha256.Size]byte
}

// maxSums limits the cache (to some ten megabytes); a full cache is cleared.
const maxSums = 100_000

func (s *digestCache) get(id fileID) (sum [sha256.Size]byte, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sum, ok = s.m[id]
	return sum, ok
}

func (s *digestCache) put(id fileID, sum [sha256.Size]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.m == nil || len(s.m) >= maxSums {
		s.m = map[fileID][sha256.Size]byte{}
	}
	s.m[id] = sum
}
