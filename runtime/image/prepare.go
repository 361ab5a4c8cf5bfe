package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

func pullKey(img sandbox.Image) string { return "pull " + img.Ref + " " + img.Platform }

// pulled prepares an image by its name.
func (s *Store) pulled(ctx context.Context, img sandbox.Image) (Info, error) {
	key := pullKey(img)
	if info, ok := s.remembered(key); ok {
		return info, nil
	}
	if _, err := s.engine(ctx); err != nil {
		return Info{}, err
	}
	rec := record{Ref: img.Ref, Name: img.Name}
	anew := s.o.Always && !s.askedRegistry(key)
	if !anew {
		info, err := s.e.Inspect(ctx, img.Ref)
		if err == nil && matchesPlatform(info, img.Platform) {
			return s.remember(key, info, rec), nil
		}
		if err != nil && !errors.Is(err, ErrMissing) {
			return Info{}, err
		}
	}
	if strings.HasPrefix(img.Ref, "sha256:") || strings.HasPrefix(img.Ref, repository+":") {
		return Info{}, fmt.Errorf("%w on this engine, and it cannot be pulled by such a name", ErrMissing)
	}
	return s.preparations.do(ctx, key, func(ctx context.Context) (Info, error) {
		began := time.Now()
		l, err := waitLock(ctx, s.lockFile("pull", key), unix.LOCK_EX)
		if err != nil {
			return Info{}, err
		}
		defer l.unlock(true)
		if !anew { // another process may have pulled it meanwhile
			if info, err := s.e.Inspect(ctx, img.Ref); err == nil && matchesPlatform(info, img.Platform) {
				return s.remember(key, info, rec), nil
			}
		}
		s.freeSpace(ctx)
		var info Info
		err = s.limited(ctx, s.pulls, img, func(ctx context.Context) error {
			s.progress(Progress{Name: name(img), Ref: img.Ref, Doing: "pull"})
			auth, err := s.auth(ctx, img.Ref)
			if err != nil {
				return err
			}
			err = s.e.Pull(ctx, Pull{Ref: img.Ref, Platform: img.Platform, Auth: auth, Progress: func(now, all int64) {
				s.progress(Progress{Name: name(img), Ref: img.Ref, Doing: "pull", Current: now, Total: all})
			}})
			if err != nil {
				return advice(err)
			}
			if info, err = s.e.Inspect(ctx, img.Ref); errors.Is(err, ErrMissing) {
				err = fmt.Errorf("%w, or somebody has removed the image at once: it was pulled, and is not there",
					ErrAway)
			}
			return err
		})
		s.finished(Outcome{Name: name(img), Ref: img.Ref, Doing: "pull", Digest: info.Digest, Took: time.Since(began),
			Err: err})
		if err != nil {
			return Info{}, err
		}
		rec.Kind = "pulled"
		s.mu.Lock()
		s.current[key] = true
		s.mu.Unlock()
		return s.remember(key, info, rec), nil
	})
}

// askedRegistry reports whether this process has pulled an image from its registry already, and
// records it.
func (s *Store) askedRegistry(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current[key]
}

// matchesPlatform reports whether an image is for a platform.
func matchesPlatform(info Info, platform string) bool {
	p := strings.Split(platform, "/")
	arch, _, _ := strings.Cut(info.Arch, "/") // without its variant
	return platform == "" || info.OS == p[0] && (len(p) < 2 || arch == p[1])
}

// built prepares the image of a recipe.
func (s *Store) built(ctx context.Context, r *recipe) (Info, error) {
	if info, ok := s.remembered(r.key); ok {
		return info, nil
	}
	info, err := s.find(ctx, r)
	if err == nil || !errors.Is(err, ErrMissing) {
		return info, err
	}
	return s.preparations.do(ctx, r.key, func(ctx context.Context) (Info, error) {
		began := time.Now()
		l, err := waitLock(ctx, s.lockFile("build", r.key), unix.LOCK_EX)
		if err != nil {
			return Info{}, err
		}
		defer l.unlock(true)
		if info, err := s.find(ctx, r); err == nil { // another process may have built it meanwhile
			return info, nil
		}
		if err := s.prepareBases(ctx, r); err != nil {
			return Info{}, err
		}
		s.freeSpace(ctx)
		out := newOutput(s.o.LogBytes)
		err = s.limited(ctx, s.builds, r.img, func(ctx context.Context) error {
			s.progress(Progress{Name: name(r.img), Ref: r.tag, Doing: "build"})
			return s.build(ctx, r, out)
		})
		var info Info
		if err == nil {
			if info, err = s.find(ctx, r); errors.Is(err, ErrMissing) {
				err = fmt.Errorf("%w, or somebody has removed the image at once: it was built, and is not there",
					ErrAway)
			}
		}
		log := out.whole()
		s.finished(Outcome{Name: name(r.img), Ref: r.tag, Key: r.key, Doing: "build", Digest: info.Digest,
			Took: time.Since(began), Log: log, Err: err})
		if err != nil {
			s.clear(context.WithoutCancel(ctx), err)
			return Info{}, &sandbox.Error{Op: "prepare",
				Err:    fmt.Errorf("%w %s: %w", sandbox.ErrBuild, title(r.img), err),
				Detail: withoutRepeatedError(out.tail(), err), Log: string(log), Permanent: s.failsAgain(ctx, err),
				BadRequest: errors.Is(err, ErrSource)}
		}
		return info, nil
	})
}

// withoutRepeatedError removes the last line of a build's output if it only repeats the error, so
// that the output ends with the reason.
func withoutRepeatedError(out string, err error) string {
	out = strings.TrimRight(out, "\n")
	if rest, ok := strings.CutSuffix(out, err.Error()); ok {
		return rest[:strings.LastIndexByte(rest, '\n')+1]
	}
	return out
}

// failsAgain reports whether a build would fail again: it failed by itself, and the engine responds
// and has disk space.
func (s *Store) failsAgain(ctx context.Context, err error) bool {
	if ctx.Err() != nil || errors.Is(err, ErrDiskFull) || errors.Is(err, ErrAway) {
		return false
	}
	_, aerr := s.e.About(ctx)
	return aerr == nil
}

// clear removes what a failed build left behind. If the disk is full, it prunes BuildKit's cache,
// which includes the context that filled it.
func (s *Store) clear(ctx context.Context, why error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	s.Sweep(ctx)
	if errors.Is(why, ErrDiskFull) {
		s.e.PruneCache(ctx, 0)
	}
}

// find looks for a recipe's image. An image whose bases have changed on this engine does not count.
func (s *Store) find(ctx context.Context, r *recipe) (Info, error) {
	info, err := s.e.Inspect(ctx, r.tag)
	if err != nil {
		return Info{}, err
	}
	if info.Labels[labelKey] != r.key {
		return Info{}, ErrMissing
	}
	then := strings.Fields(info.Labels[labelBases])
	for i, b := range r.bases {
		now, err := s.e.Inspect(ctx, b.ref)
		if err != nil {
			continue // the base was removed, and the image is complete without it
		}
		if i < len(then) && then[i] != now.ID && then[i] != "-" {
			return Info{}, ErrMissing
		}
	}
	info.Ref = r.tag
	return s.remember(r.key, info, record{Ref: r.tag, Name: r.img.Name, Kind: "built", Own: ownSize(info)}), nil
}

// ownSize returns the size of an image of ours without its base.
func ownSize(info Info) int64 {
	under, _ := strconv.ParseInt(info.Labels[labelUnder], 10, 64)
	return max(0, info.Size-max(0, under))
}

// prepareBases prepares the base images of a build, so that they have progress, credentials and
// errors of their own, and the builder contacts no registry. Their ONBUILD steps are checked like
// the Dockerfile.
func (s *Store) prepareBases(ctx context.Context, r *recipe) error {
	about, err := s.engine(ctx)
	if err != nil {
		return err
	}
	for _, b := range r.bases {
		img := sandbox.Image{Ref: b.ref, Platform: b.platform, Timeout: r.img.Timeout}
		if img.Platform == "" {
			img.Platform = r.img.Platform
		}
		info, err := s.pulled(ctx, img)
		if err != nil {
			return fmt.Errorf("its base %s (Dockerfile line %d): %w", b.ref, b.line, err)
		}
		if err := r.triggers(about, b, info.Config.OnBuild); err != nil {
			return err
		}
	}
	return nil
}

// build builds a recipe with the engine.
func (s *Store) build(ctx context.Context, r *recipe, out *output) error {
	// Removing the remains of builds takes this lock exclusively.
	on, err := s.buildsLock(unix.LOCK_SH, func(name string, how int) (*lock, error) { return waitLock(ctx, name, how) })
	if err != nil {
		return err
	}
	defer on.unlock(false)
	ids := make([]string, len(r.bases))
	var under int64
	for i, b := range r.bases {
		ids[i] = "-"
		if info, err := s.e.Inspect(ctx, b.ref); err == nil {
			ids[i] = info.ID
			if b.ref == r.final {
				under = info.Size
			}
		}
	}
	pr, pw := io.Pipe()
	sent := make(chan error, 1)
	go func() {
		err := r.stream(ctx, pw)
		pw.CloseWithError(err)
		sent <- err
	}()
	network := ""
	if r.img.Network == "none" {
		network = "none"
	}
	err = s.e.Build(ctx, Build{
		Tag: r.tag,
		Labels: map[string]string{labelKey: r.key, labelBases: strings.Join(ids, " "),
			labelUnder: strconv.FormatInt(under, 10)},
		Context: pr, Dockerfile: r.file, Args: maps.Clone(r.img.Args), Target: r.img.Target, Platform: r.img.Platform,
		Network: network,
		Classic: r.classic, CPUs: s.o.CPUs, Memory: s.o.Memory, Log: out,
		Step: func(text string) { s.progress(Progress{Name: name(r.img), Ref: r.tag, Doing: "build", Step: text}) },
	})
	pr.CloseWithError(io.ErrClosedPipe)
	if serr := <-sent; err != nil && serr != nil && !errors.Is(serr, io.ErrClosedPipe) && ctx.Err() == nil {
		return serr // the cause of the engine's error
	}
	switch {
	case errors.Is(err, ErrDiskFull):
		return diskAdvice(err)
	case err != nil && strings.Contains(strings.ToLower(out.tail()), "no space left on device"):
		return fmt.Errorf("%w (it printed that a disk is full; if that is the engine's, free some with evalrun "+
			"images prune --all)", err)
	}
	return err
}

func (s *Store) progress(p Progress) {
	if s.o.Progress != nil {
		s.o.Progress(p)
	}
}

func (s *Store) finished(o Outcome) {
	s.progress(Progress{Name: o.Name, Ref: o.Ref, Doing: o.Doing, Done: true, Err: o.Err})
	if s.o.Done != nil {
		s.o.Done(o)
	}
}
