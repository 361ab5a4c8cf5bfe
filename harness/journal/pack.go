package journal

import (
	"context"
	"io"
	"os"
	"path/filepath"

	"github.com/klauspost/compress/zstd"

	"github.com/evalrun/evalrun/internal/fsutil"

	"github.com/evalrun/evalrun/harness/journal/internal/admit"
)

// packer compresses finished segments that need no random access, one after the other.
func (j *Journal) packer(ctx context.Context) {
	defer close(j.packing)
	background()
	for {
		if err := j.pack(ctx); err != nil {
			return // leave the segments as they are; the next Open tries again
		}
		select {
		case <-j.packWake:
		case <-ctx.Done():
			return
		}
	}
}

func (j *Journal) pack(ctx context.Context) error {
	segs, err := segments(j.dir)
	if err != nil {
		return err
	}
	for _, s := range segs {
		if s.packed || !j.idleSegment(s.n) {
			continue
		}
		if err := packFile(ctx, filepath.Join(j.dir, segmentFile(s.n))); err != nil {
			return err
		}
	}
	return nil
}

// idleSegment reports whether a segment can be compressed: it is finished, nobody is reading it,
// and no attempt that may still be read has entries in it.
func (j *Journal) idleSegment(n int) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if n >= j.finished || j.pins[n] > 0 {
		return false
	}
	for _, t := range j.index.Open {
		for a := range t.Attempts() {
			if within(a, n) {
				return false
			}
		}
	}
	return true
}

// within reports whether an attempt has entries in a segment. The attempt's entries are in the
// order of the segments, with entries of control.jsonl between them.
func within(a *admit.Attempt, n int) bool {
	lo, hi := 0, len(a.At)
	for lo < hi {
		mid := (lo + hi) / 2
		k := mid
		for k < hi && a.At[k].Segment() == 0 {
			k++
		}
		switch {
		case k == hi:
			hi = mid
		case a.At[k].Segment() == n:
			return true
		case a.At[k].Segment() < n:
			lo = k + 1
		default:
			hi = mid
		}
	}
	return false
}

// packFile replaces name by name.zst, unless it is empty: a recovery may have set all its lines
// apart, and an archive without lines is a damaged one. An idle segment stays idle, because no entry
// is ever added to it.
func packFile(ctx context.Context, name string) error {
	in, err := os.Open(name)
	if err != nil {
		return err
	}
	defer in.Close()
	st, err := in.Stat()
	if err != nil {
		return err
	}
	if st.Size() == 0 {
		return nil
	}
	x, err := plainExtent(in, st.Size())
	if err != nil {
		return err
	}
	what := about{First: x.first, Last: x.last}
	out, err := os.OpenFile(name+packed+partial, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	if _, err := out.Seek(aboutSize, io.SeekStart); err != nil {
		out.Close()
		return err
	}
	z, err := zstd.NewWriter(out, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest),
		zstd.WithLowerEncoderMem(true))
	if err == nil {
		_, err = io.Copy(z, &stoppable{ctx, in})
		if cerr := z.Close(); err == nil {
			err = cerr
		}
	}
	if err == nil {
		what.Size, err = out.Seek(0, io.SeekEnd)
	}
	if err == nil {
		var frame []byte
		if frame, err = what.frame(); err == nil {
			_, err = out.WriteAt(frame, 0)
		}
	}
	if err == nil {
		err = out.Sync()
	}
	if cerr := out.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(name+packed+partial, name+packed)
	}
	if err != nil {
		os.Remove(name + packed + partial)
		return err
	}
	if err := fsutil.SyncDir(filepath.Dir(name)); err != nil {
		return err
	}
	return os.Remove(name)
}

// A stoppable reads until the context ends.
type stoppable struct {
	ctx context.Context
	r   io.Reader
}

func (s *stoppable) Read(p []byte) (int, error) {
	if err := s.ctx.Err(); err != nil {
		return 0, err
	}
	return s.r.Read(p)
}
