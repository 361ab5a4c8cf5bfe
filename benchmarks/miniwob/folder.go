package miniwob

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
)

// sample is a page by which a folder of pages is known.
const sample = "miniwob/click-test.html"

// howToFetch is what brings the pages, in the words of a shell.
const howToFetch = "pip download --no-deps miniwob && evalrun tasks fetch miniwob --from miniwob-*.whl"

// places are where, below a folder that somebody names, the pages may be: in the package's html
// folder, in the package, in the repository.
var places = []string{".", "html", "miniwob/html", "miniwob", "src/miniwob/html"}

// Dir is where `evalrun tasks fetch miniwob` puts the pages: evalrun/miniwob in the user's folder
// for data.
func Dir() (string, error) {
	base := os.Getenv("XDG_DATA_HOME")
	if !filepath.IsAbs(base) {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("finding the user's folder for data: %w; set XDG_DATA_HOME", err)
		}
		base = filepath.Join(home, ".local", "share")
	}
	return filepath.Join(base, "evalrun", "miniwob"), nil
}

// findDir is the folder that holds miniwob/ and core/. named is what the user says; "": that of
// [Dir].
func findDir(named string) (string, error) {
	if named == "" {
		dir, err := Dir()
		if err != nil {
			return "", err
		}
		if _, err := os.Stat(filepath.Join(dir, sample)); err != nil {
			return "", fmt.Errorf("the pages of MiniWoB++ are not in %s; get them once by: %s, or name their folder: "+
				"miniwob:FOLDER", dir, howToFetch)
		}
		return dir, nil
	}
	for _, p := range append([]string{".."}, places...) {
		dir := filepath.Join(named, p)
		if _, err := os.Stat(filepath.Join(dir, sample)); err == nil {
			return dir, nil
		}
	}
	if _, err := os.Stat(named); err != nil {
		return "", fmt.Errorf("miniwob: %w; name the folder with the pages of MiniWoB++, or leave it out and get "+
			"them by: %s", err, howToFetch)
	}
	return "", fmt.Errorf("miniwob: %s has no pages of MiniWoB++: neither it nor its folder html has %s; name the "+
		"package's folder html, or leave the folder out and get the pages by: %s", named, sample, howToFetch)
}

// shared are the folders that all pages use.
var shared = []string{"core", "common"}

// A folder is the pages as they lie on a disk. Nothing of it is read through a link that leads out
// of it.
type folder struct {
	root *os.Root
	rest string // digest of what pages share
}

func openFolder(dir string) (*folder, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("miniwob: %w", err)
	}
	f := &folder{root: root}
	h := sha256.New()
	for _, d := range shared {
		err := fs.WalkDir(root.FS(), d, func(name string, e fs.DirEntry, err error) error {
			if err != nil || !e.Type().IsRegular() {
				return err
			}
			sum, err := f.digest(name)
			fmt.Fprintf(h, "%s %s\n", sum, name)
			return err
		})
		switch {
		case errors.Is(err, fs.ErrNotExist) && d == "core": // without it no page has an episode to start
			err = fmt.Errorf("%s has pages, but no folder core, which all of them load; name a folder that has both, "+
				"or get the pages by: %s", dir, howToFetch)
		case errors.Is(err, fs.ErrNotExist):
			err = nil
		}
		if err != nil {
			root.Close()
			return nil, fmt.Errorf("miniwob: %w", err)
		}
	}
	f.rest = hex.EncodeToString(h.Sum(nil))
	return f, nil
}

// digest is the SHA-256 of a file.
func (f *folder) digest(name string) (string, error) {
	r, err := f.root.Open(name)
	if err != nil {
		return "", err
	}
	defer r.Close()
	h := sha256.New()
	if _, err := io.Copy(h, r); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// page is a page's digest.
func (f *folder) page(name string) (string, error) { return f.digest(path.Join("miniwob", name)) }
