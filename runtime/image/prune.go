package image

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// A Kept image is one that we built or pulled.
type Kept struct {
	Ref    string    `json:"ref"`
	Name   string    `json:"name,omitempty"` // the benchmark or task that needed it first
	Kind   string    `json:"kind"`           // built, pulled
	ID     string    `json:"id"`
	Size   int64     `json:"size"` // bytes of all layers
	Own    int64     `json:"own"`  // approximate bytes without its base, which count for the budget
	Made   time.Time `json:"made"`
	Used   time.Time `json:"used"`
	InUse  bool      `json:"in_use"`           // by a container
	Reason string    `json:"reason,omitempty"` // why Prune did not remove it
}

// List returns the images that we built or pulled, the least recently used first.
func (s *Store) List(ctx context.Context) ([]Kept, error) {
	if _, err := s.engine(ctx); err != nil {
		return nil, err
	}
	all, err := s.e.List(ctx)
	if err != nil {
		return nil, err
	}
	containers, err := s.e.Containers(ctx)
	if err != nil {
		return nil, err
	}
	busy := map[string]bool{}
	for _, c := range containers {
		busy[c.Image] = true
	}
	records := s.records()
	var out []Kept
	for _, info := range all {
		for _, ref := range info.Tags {
			r, ok := records[ref]
			k := Kept{Ref: ref, Name: r.Name, Kind: r.Kind, ID: info.ID, Size: info.Size, Own: r.Own, Made: r.Made,
				Used: r.used, InUse: busy[info.ID]}
			switch {
			case ours(info, ref):
				if k.Kind = "built"; !ok {
					k.Own, k.Made, k.Used = ownSize(info), info.Created, info.Created
				}
			case !ok || r.ID != info.ID:
				continue // another image now has this name, or it was never ours
			}
			out = append(out, k)
		}
	}
	slices.SortStableFunc(out, func(a, b Kept) int { return a.Used.Compare(b.Used) })
	return out, nil
}

// ours reports whether a name was given by a build of ours. The label alone is not enough, since
// images built upon ours inherit it.
func ours(info Info, ref string) bool {
	key := info.Labels[labelKey]
	return len(key) >= 32 && ref == repository+":"+key[:32]
}

// Pruning selects what Prune removes.
type Pruning struct {
	All    bool          // everything that is not in use
	Older  time.Duration // what was not used for so long
	Budget int64         // the least recently used, until the rest is within this size; 0: no budget
	Cache  bool          // the builder's cache too: what was not used for Older (default: a day)
	Dry    bool          // only report

	recent time.Duration // keep what was used within this time
	known  bool          // only images with a usage record of this user
}

// Pruned is the result of Prune.
type Pruned struct {
	Removed []Kept
	Left    []Kept // with the reason, if it was selected
	Freed   int64  // approximate bytes
	Cache   int64
	Scraps  int // unnamed images and containers of builds
}

// Prune removes images of ours, the least recently used first. It never removes one that a
// container uses.
func (s *Store) Prune(ctx context.Context, p Pruning) (Pruned, error) {
	var out Pruned
	list, err := s.List(ctx)
	if err != nil {
		return out, err
	}
	if !p.Dry {
		if out.Scraps, err = s.Sweep(ctx); err != nil {
			return out, err
		}
	}
	var total int64
	for _, k := range list {
		total += k.Own
	}
	records := s.records()
	now := time.Now()
	for _, k := range list {
		over := p.Budget > 0 && total > p.Budget
		if !p.All && !over && (p.Older <= 0 || now.Sub(k.Used) < p.Older) {
			out.Left = append(out.Left, k)
			continue
		}
		switch {
		case k.InUse:
			k.Reason = "a container uses it"
		case p.known && records[k.Ref].file == "":
			k.Reason = "another user's evalrun made it"
		case p.recent > 0 && now.Sub(k.Used) < p.recent:
			k.Reason = "it was used just now"
		case s.inProgress(k):
			k.Reason = "it is being made"
		case !p.Dry:
			switch err := s.e.Remove(ctx, k.Ref); {
			case errors.Is(err, ErrInUse):
				k.Reason = "it is in use"
			case err != nil && !errors.Is(err, ErrMissing):
				return out, fmt.Errorf("removing %s: %w", k.Ref, err)
			default:
				s.removeRecord(records[k.Ref])
				s.Forget(k.ID)
			}
		}
		if k.Reason != "" {
			out.Left = append(out.Left, k)
			continue
		}
		total -= k.Own
		out.Freed += k.Own
		out.Removed = append(out.Removed, k)
	}
	if p.Cache && !p.Dry {
		older := p.Older
		if older <= 0 && !p.All {
			older = 24 * time.Hour
		}
		if out.Cache, err = s.e.PruneCache(ctx, older); err != nil {
			return out, err
		}
	}
	return out, nil
}

// inProgress reports whether a process is pulling or building a name now.
func (s *Store) inProgress(k Kept) bool {
	l, err := tryLock(s.lockFile("pull", "pull "+k.Ref+" "), unix.LOCK_EX)
	if err != nil {
		return errors.Is(err, errLocked)
	}
	l.unlock(true)
	return false
}

// freeSpace frees disk space before an image is made. If nothing can be removed, the image is made
// all the same, and may fail when the disk is full.
func (s *Store) freeSpace(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*sweeping) // do not delay the build for long
	defer cancel()
	s.Sweep(ctx)
	if budget, err := s.Budget(ctx); err == nil && budget > 0 {
		s.Prune(ctx, Pruning{Budget: budget, recent: s.o.Grace, known: true})
	}
}

// Budget returns the current budget for images of ours, in bytes; 0: no limit.
func (s *Store) Budget(ctx context.Context) (int64, error) {
	about, err := s.engine(ctx)
	if err != nil || s.o.Budget != 0 || about.Dir == "" {
		return max(0, s.o.Budget), err
	}
	var st unix.Statfs_t
	if unix.Statfs(about.Dir, &st) != nil {
		return 0, nil
	}
	list, err := s.List(ctx)
	if err != nil {
		return 0, err
	}
	n := int64(st.Bavail) * int64(st.Bsize)
	for _, k := range list {
		n += k.Own
	}
	return max(1, n/10*6), nil
}

// Swept returns the number of things that Sweep has removed in the life of this Store, including
// its own calls of Sweep.
func (s *Store) Swept() int { return int(s.swept.Load()) }

// unnamed is how long an image may be without a name while a process on another machine is creating
// it.
const unnamed = 2 * time.Second

// sweeping limits Sweep. No build runs meanwhile, and an engine that is stuck with one container
// may never answer.
const sweeping = 20 * time.Second

// Sweep removes what builds of dead processes left behind: containers of single steps, layers
// without a name, stale locks. It does nothing while any evalrun process builds on this engine. It
// returns the number of things removed; [Store.Swept] counts them.
func (s *Store) Sweep(ctx context.Context) (n int, err error) {
	defer func() { s.swept.Add(int64(n)) }()
	ctx, cancel := context.WithTimeout(ctx, sweeping)
	defer cancel()
	if _, err := s.engine(ctx); err != nil {
		return 0, err
	}
	s.sweepLocks()
	l, err := s.buildsLock(unix.LOCK_EX, tryLock)
	if errors.Is(err, errLocked) || l == nil && err == nil {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer l.unlock(false)
	all, err := s.e.List(ctx)
	if err != nil {
		return 0, err
	}
	containers, err := s.e.Containers(ctx)
	if err != nil {
		return 0, err
	}
	byID := map[string]Info{}
	for _, info := range all {
		byID[info.ID] = info
	}
	busy := map[string]bool{}
	for _, c := range containers {
		// A container of a finished image has the key, and one of an intermediate step only the
		// label after FROM. A running one belongs to a build from another machine.
		if c.Labels[labelBuild] != "" && c.Labels[labelKey] == "" && len(byID[c.Image].Tags) == 0 && !c.Running {
			switch err := s.e.RemoveContainer(ctx, c.ID); {
			case err == nil:
				n++
				continue
			case !errors.Is(err, ErrInUse) && !errors.Is(err, ErrMissing):
				return n, err
			}
		}
		busy[c.Image] = true
	}
	for _, info := range all {
		if len(info.Tags) > 0 || busy[info.ID] || info.Labels[labelBuild] == "" && info.Labels[labelKey] == "" ||
			time.Since(info.Created) < unnamed {
			continue
		}
		switch err := s.e.Remove(ctx, info.ID); {
		case err == nil:
			n++
		case !errors.Is(err, ErrInUse) && !errors.Is(err, ErrMissing):
			return n, err
		}
	}
	return n, nil
}
