package image

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A record describes an image that we made or pulled, in a file of its own in the cache directory.
// The file's time is the image's last use.
type record struct {
	Ref  string    `json:"ref"`
	Name string    `json:"name,omitempty"` // the first that needed it
	Kind string    `json:"kind"`           // built, pulled
	ID   string    `json:"id"`
	Own  int64     `json:"own"` // bytes without its base
	Made time.Time `json:"made"`

	used time.Time
	file string
}

// used records that an image was used now. An image that existed before has no record, and gets
// none.
func (s *Store) used(info Info, rec record) {
	file := filepath.Join(s.dir(), "images", short(rec.Ref)+".json")
	now := time.Now()
	old, err := readRecord(file)
	if err == nil && (rec.Kind == "" || old.ID == info.ID) {
		_ = os.Chtimes(file, now, now) // otherwise it is pruned earlier
		return
	}
	if rec.Kind == "" {
		return
	}
	rec.ID, rec.Made = info.ID, now
	if rec.Kind == "pulled" {
		rec.Own = info.Size
	}
	// Without a record the image does not count for the budget, which is harmless.
	b, err := json.Marshal(rec)
	if err != nil || os.MkdirAll(filepath.Dir(file), 0o700) != nil {
		return
	}
	tmp, err := os.CreateTemp(filepath.Dir(file), ".new-*")
	if err != nil {
		return
	}
	_, err = tmp.Write(b)
	if cerr := tmp.Close(); err == nil {
		err = cerr
	}
	if err != nil || os.Rename(tmp.Name(), file) != nil {
		os.Remove(tmp.Name())
	}
}

func readRecord(file string) (record, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return record{}, err
	}
	r := record{file: file}
	if err := json.Unmarshal(b, &r); err != nil {
		return record{}, err
	}
	info, err := os.Stat(file)
	if err != nil {
		return record{}, err
	}
	r.used = info.ModTime()
	return r, nil
}

// records returns all records of this engine, by reference. It removes incomplete files of dead
// processes.
func (s *Store) records() map[string]record {
	dir := filepath.Join(s.dir(), "images")
	list, _ := os.ReadDir(dir)
	out := map[string]record{}
	for _, de := range list {
		file := filepath.Join(dir, de.Name())
		if strings.HasPrefix(de.Name(), ".new-") {
			if info, err := de.Info(); err == nil && time.Since(info.ModTime()) > time.Hour {
				os.Remove(file)
			}
			continue
		}
		if r, err := readRecord(file); err == nil {
			out[r.Ref] = r
		}
	}
	return out
}

// removeRecord removes the record of a removed image.
func (s *Store) removeRecord(r record) {
	if r.file != "" {
		os.Remove(r.file)
	}
}

// sweepLocks removes files of locks that no process holds and that were not used recently.
func (s *Store) sweepLocks() {
	dir := filepath.Join(s.dir(), "locks")
	list, _ := os.ReadDir(dir)
	for _, de := range list {
		info, err := de.Info()
		if err != nil || time.Since(info.ModTime()) < time.Hour {
			continue
		}
		if l, err := tryLock(filepath.Join(dir, de.Name()), unix.LOCK_EX); err == nil {
			l.unlock(true)
		}
	}
}
