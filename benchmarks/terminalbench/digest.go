package terminalbench

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// Bounds of a task folder.
const (
	maxFiles = 50_000
	maxBytes = 8 << 30
)

// digest identifies a task's content: SHA-256 over a line "path NUL sha256-of-file LF" for each
// file, in the order of the paths. It is formed as Harbor's, over all files but those that editors
// and Python leave behind; v1 itself has none.
func digest(fsys fs.FS) (string, error) {
	var names []string
	links := map[string]string{}
	err := fs.WalkDir(fsys, ".", func(p string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case leftover(e.Name()) && p != ".":
			if e.IsDir() {
				return fs.SkipDir
			}
			return nil
		case e.Type()&fs.ModeSymlink != 0:
			to, err := fs.ReadLink(fsys, p)
			if err != nil {
				return err
			}
			links[p] = to
		case e.IsDir():
			return nil
		case !e.Type().IsRegular():
			return fmt.Errorf("%s is a device, a pipe or a socket; remove it", p)
		}
		if names = append(names, p); len(names) > maxFiles {
			return fmt.Errorf("more than %d files", maxFiles)
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	slices.Sort(names)
	all, left := sha256.New(), int64(maxBytes)
	for _, p := range names {
		h := sha256.New()
		if to, link := links[p]; link {
			fmt.Fprintf(h, "link to %s", to)
		} else if err := hashFile(fsys, p, h, &left); err != nil {
			return "", err
		}
		fmt.Fprintf(all, "%s\x00%s\n", p, hex.EncodeToString(h.Sum(nil)))
	}
	return "sha256:" + hex.EncodeToString(all.Sum(nil)), nil
}

func hashFile(fsys fs.FS, name string, to io.Writer, left *int64) error {
	f, err := fsys.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	n, err := io.Copy(to, io.LimitReader(f, *left+1))
	if *left -= n; *left < 0 && err == nil {
		err = errors.New("more than 8 GiB of files")
	}
	return err
}

// leftover reports whether a file is no part of the task.
func leftover(name string) bool {
	return name == "__pycache__" || name == ".DS_Store" || name == ".git" || strings.HasSuffix(name, "~") ||
		slices.Contains([]string{".pyc", ".swp", ".swo"}, path.Ext(name))
}
