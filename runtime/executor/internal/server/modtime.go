package server

import (
	"time"

	"golang.org/x/sys/unix"
)

func modTime(s *unix.Stat_t) time.Time { return time.Unix(s.Mtim.Unix()) }
