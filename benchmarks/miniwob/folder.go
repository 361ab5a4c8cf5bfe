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

// sample is a page whose presence identifies a directory of pages.
const sample = "miniwob/click-test.html"

// howToFetch is the shell command that fetches the pages.
const howToFetch = "pip download --no-deps miniwob && evalrun tasks fetch miniwob --from miniwob-*.whl"

// places are the locations of the pages relative to the directory that a user names: the package's
// html directory, the package, or the repository.
var places = []string{".", "html", "miniwob/html", "miniwob", "src/miniwob/html"}

// Dir returns the directory where `evalrun tasks fetch miniwob` puts the pages: evalrun/miniwob in
// the user's data directory.
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

// findDir returns the directory that contains miniwob/ and core/. named is the user's choice; ""
// means [Dir].
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

// shared are the directories that all pages use.
var shared = []string{"core", "common"}

// A folder gives access to the pages on disk. It does not follow links that lead out of the
// directory.
type folder struct {
	root *os.Root
	rest string // digest of the files that pages share
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
		// without core no page can start an episode
		case errors.Is(err, fs.ErrNotExist) && d == "core":
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

// digest returns the SHA-256 of a file.
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

// page returns the digest of a page.
func (f *folder) page(name string) (string, error) { return f.digest(path.Join("miniwob", name)) }
