package miniwob

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/csv"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Fetched is the result of [Fetch].
type Fetched struct {
	Dir     string // where the pages are now
	Files   int
	Bytes   int64
	Digest  string // of all files and their names
	Version string // published version with identical files; "" if there is none
}

// versions maps digests to published versions.
var versions = map[string]string{"28d34feb886387e9f9e27a78136867968344d5dc7e621240eefefbff75770f7b": "1.1.0"}

// Limits for unpacking. The published pages are 300 files with 5 MB in total.
const (
	maxFiles = 5000
	maxFile  = 16 << 20
	maxAll   = 128 << 20
)

// parts are the directories that belong to the pages.
var parts = []string{"core", "common", "miniwob", "flight"}

// Fetch copies the pages from a directory, a ZIP file or a wheel of the package miniwob to [Dir],
// replacing earlier ones. The archive is not trusted: names must stay below that directory, links
// and oversized files are refused, and a wheel's files are checked against its own list of digests.
// On error the earlier pages are left unchanged.
func Fetch(ctx context.Context, from string) (f Fetched, err error) {
	if f.Dir, err = Dir(); err != nil {
		return f, err
	}
	src, closer, err := openSource(from)
	if err != nil {
		return f, fmt.Errorf("fetching the pages of MiniWoB++: %w", err)
	}
	defer closer()
	if err := fetch(ctx, src, &f, filepath.Base(from)); err != nil {
		return f, fmt.Errorf("fetching the pages of MiniWoB++ from %s: %w", from, err)
	}
	return f, nil
}

func openSource(from string) (fs.FS, func() error, error) {
	info, err := os.Stat(from)
	if err != nil {
		return nil, nil, err
	}
	if info.IsDir() {
		root, err := os.OpenRoot(from)
		if err != nil {
			return nil, nil, err
		}
		return root.FS(), root.Close, nil
	}
	if info.Size() > maxAll {
		return nil, nil, fmt.Errorf("%s has more than %d MB", from, maxAll>>20)
	}
	z, err := zip.OpenReader(from)
	if err != nil {
		return nil, nil, fmt.Errorf("%s is neither a folder nor a ZIP nor a wheel: %w", from, err)
	}
	return &z.Reader, z.Close, nil
}

func fetch(ctx context.Context, src fs.FS, f *Fetched, from string) error {
	base, err := findBase(src)
	if err != nil {
		return err
	}
	sums, err := wheelSums(src)
	if err != nil {
		return err
	}
	parent := filepath.Dir(f.Dir)
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(parent, "miniwob-new-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	root, err := os.OpenRoot(tmp)
	if err != nil {
		return err
	}
	defer root.Close()

	have := map[string]string{} // digests by name
	lower := map[string]string{}
	for _, part := range parts {
		err := fs.WalkDir(src, path.Join(base, part), func(name string, e fs.DirEntry, err error) error {
			switch {
			case errors.Is(err, fs.ErrNotExist) && e == nil:
				return nil
			case err != nil:
				return err
			case ctx.Err() != nil:
				return context.Cause(ctx)
			case e.IsDir():
				return nil
			case !e.Type().IsRegular():
				return fmt.Errorf("%q is no plain file", name)
			case f.Files == maxFiles:
				return fmt.Errorf("there are more than %d files", maxFiles)
			}
			to := name
			if base != "." {
				to = strings.TrimPrefix(name, base+"/")
			}
			if strings.ContainsFunc(to, func(r rune) bool { return r < ' ' || r == '\\' || r == ':' || r == 0x7f }) ||
				!filepath.IsLocal(to) {
				return fmt.Errorf("%q is no name for a file of these", name)
			}
			if twin, ok := lower[strings.ToLower(to)]; ok {
				return fmt.Errorf("%q and %q are one name on some disks", twin, to)
			}
			lower[strings.ToLower(to)] = to
			sum, n, err := copyFile(src, name, root, to, maxAll-f.Bytes)
			if err != nil {
				return err
			}
			if want, ok := sums[name]; sums != nil && (!ok || want != sum) {
				return fmt.Errorf("%s is not what the wheel's own list says: the file is damaged; get it anew", name)
			}
			have[to], f.Files, f.Bytes = sum, f.Files+1, f.Bytes+n
			return nil
		})
		if err != nil {
			return err
		}
	}
	var missing []string
	for _, t := range Tasks() {
		if have["miniwob/"+t.Name+".html"] == "" {
			missing = append(missing, t.Name)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("%d of %d pages are not there, %s among them; name a whole wheel, ZIP or folder html",
			len(missing), len(Tasks()), missing[0])
	}
	if !slices.ContainsFunc(slices.Collect(maps.Keys(have)),
		func(name string) bool { return strings.HasPrefix(name, "core/") }) {
		return errors.New("there are pages, but no folder core, which all of them load")
	}
	f.Digest = treeDigest(have)
	f.Version = versions[f.Digest]
	note, err := json.MarshalIndent(map[string]any{"from": from, "fetched": time.Now().UTC().Truncate(time.Second),
		"digest": f.Digest, "version": f.Version, "files": have}, "", " ")
	if err != nil {
		return err
	}
	if err := root.WriteFile("evalrun.json", note, 0o644); err != nil {
		return err
	}
	if err := os.Chmod(tmp, 0o755); err != nil {
		return err
	}
	return replace(f.Dir, tmp)
}

// replace replaces the directory dir with the directory by.
func replace(dir, by string) error {
	old := by + "-old"
	err := os.Rename(dir, old)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Rename(by, dir); err != nil {
		return errors.Join(err, os.Rename(old, dir))
	}
	return os.RemoveAll(old)
}

// findBase returns the directory that contains the pages.
func findBase(src fs.FS) (string, error) {
	depth := func(s string) int { return strings.Count(s, "/") }
	base, seen := "", 0
	err := fs.WalkDir(src, ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if seen++; seen > 100*maxFiles {
			return errors.New("there is too much to look through; name the folder html itself")
		}
		if e.IsDir() && depth(name) > 6 {
			return fs.SkipDir
		}
		if strings.HasSuffix("/"+name, "/"+sample) && e.Type().IsRegular() {
			if b := path.Dir(path.Dir(name)); base == "" || depth(b) < depth(base) {
				base = b
			}
		}
		return nil
	})
	if err == nil && base == "" {
		err = fmt.Errorf("there is no %s; name a wheel of miniwob, or the folder that has miniwob/ and core/", sample)
	}
	return base, err
}

// wheelSums returns the digests listed in a wheel, by name, or nil if src is not a wheel.
func wheelSums(src fs.FS) (map[string]string, error) {
	records, err := fs.Glob(src, "*.dist-info/RECORD")
	if err != nil || len(records) != 1 {
		return nil, err
	}
	var buf bytes.Buffer
	f, err := src.Open(records[0])
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if _, err := io.Copy(&buf, io.LimitReader(f, maxFile)); err != nil {
		return nil, err
	}
	r := csv.NewReader(&buf)
	r.FieldsPerRecord = -1
	rows, err := r.ReadAll()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", records[0], err)
	}
	sums := map[string]string{}
	for _, row := range rows {
		if len(row) < 2 {
			continue
		}
		if s, ok := strings.CutPrefix(row[1], "sha256="); ok {
			raw, err := base64.RawURLEncoding.DecodeString(s)
			if err != nil {
				return nil, fmt.Errorf("%s: the digest of %q is none", records[0], row[0])
			}
			sums[row[0]] = hex.EncodeToString(raw)
		}
	}
	return sums, nil
}

func copyFile(src fs.FS, from string, root *os.Root, to string, left int64) (sum string, n int64, err error) {
	in, err := src.Open(from)
	if err != nil {
		return "", 0, err
	}
	defer in.Close()
	if err := root.MkdirAll(path.Dir(to), 0o755); err != nil {
		return "", 0, err
	}
	out, err := root.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return "", 0, err
	}
	h := sha256.New()
	limit := min(left, maxFile)
	n, err = io.Copy(io.MultiWriter(out, h), io.LimitReader(in, limit+1))
	if cerr := out.Close(); err == nil {
		err = cerr
	}
	if err == nil && n > limit {
		err = fmt.Errorf("%q is too large: a file may have %d MB, all together %d MB", from, maxFile>>20, maxAll>>20)
	}
	return hex.EncodeToString(h.Sum(nil)), n, err
}

func treeDigest(files map[string]string) string {
	var names []string
	for n := range files {
		names = append(names, n)
	}
	slices.Sort(names)
	h := sha256.New()
	for _, n := range names {
		fmt.Fprintf(h, "%s  %s\n", files[n], n)
	}
	return hex.EncodeToString(h.Sum(nil))
}
