package verify

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/benchmarks/filetree"
	"github.com/evalrun/evalrun/benchmarks/sandboxed"
	"github.com/evalrun/evalrun/benchmarks/score"
	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/runtime/executor"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// Bounds of the work that a second opinion is given.
const (
	maxWorkFiles = 100_000
	maxWorkBytes = 1 << 30
	// maxWorkReads limits the files that are read one by one: those outside of new folders.
	maxWorkReads = 10_000
	// maxWorkNames limits the bytes of the names that the evidence lists. An agent can make files with
	// 128 MiB of names, for which several GiB of memory would be needed.
	maxWorkNames = 16 << 20
	// maxRestFiles and maxRestBytes limit what is kept of changes outside of the work.
	maxRestFiles = 500
	maxRestBytes = 8 << 20
)

var (
	// quotedPath is an absolute path in backquotes, barePath one that stands alone or is emphasized,
	// listed or an option's value.
	quotedPath = regexp.MustCompile("`(/[^`\\s]+)`")
	barePath   = regexp.MustCompile(`(?:^|[\s("'*|=,\[])(/[A-Za-z0-9_./+@*{-]+)`)
	// requested is what stands before the path of a request by HTTP.
	requested = regexp.MustCompile("\\b(GET|HEAD|POST|PUT|PATCH|DELETE|OPTIONS)[`*\"' ]+$")
	// moved are folders that are links in most images.
	moved = [][2]string{{"/bin", "/usr/bin"}, {"/sbin", "/usr/sbin"}, {"/lib", "/usr/lib"}, {"/lib64", "/usr/lib64"},
		{"/var/run", "/run"}, {"/var/lock", "/run/lock"}}
	// systemDirs are folders in which only single files are work, homes those that are none as a
	// whole.
	systemDirs = []string{"/usr", "/lib", "/lib32", "/lib64", "/libx32", "/bin", "/sbin", "/etc", "/var/lib", "/boot",
		"/dev", "/proc", "/sys", "/tests", "/solution", "/oracle", "/logs/agent", "/logs/verifier"}
	homes = []string{"/", "/root", "/home", "/var", "/opt", "/tmp", "/run", "/srv", "/logs"}
)

// Origins of a path of the work.
const (
	fromInstruction = "instruction"
	fromArtifacts   = "artifacts"
	fromDir         = "working directory"
	fromOption      = "option work"
	// onlyFile is added where a folder at the path would be no work.
	onlyFile = ", if it is a file"
	// fromImage is that of the working directory if only the image knows it.
	fromImage = "working directory, which only the image knows; it is no work if it is a home or a folder of the system"
)

// WorkPaths returns the paths of a task's work: those that the run's option names or, if it names
// none, those that the task's instruction names, the artifacts that it declares, and the working
// directory, unless that is the root, a home or a folder of the system. Of a pattern it is the folder.
// Names and artifacts may be relative to the working directory. If dir is empty, they stay so, and
// the directory is an entry without a path.
func WorkPaths(named []string, dir, instruction string, artifacts ...string) []record.WorkPath {
	var out []record.WorkPath
	add := func(p, from string) {
		if p = path.Clean(p); !folderIsWork(p) {
			from += onlyFile
		}
		if p != "/" && !slices.ContainsFunc(out, func(w record.WorkPath) bool { return w.Path == p }) {
			out = append(out, record.WorkPath{Path: p, From: from})
		}
	}
	from := fromArtifacts
	if len(named) > 0 {
		instruction, artifacts, from = "", named, fromOption
	}
	for _, re := range []*regexp.Regexp{quotedPath, barePath} {
		for _, m := range re.FindAllStringSubmatchIndex(instruction, 1000) {
			if requested.MatchString(instruction[max(0, m[2]-20):m[2]]) {
				continue
			}
			p := strings.TrimRight(instruction[m[2]:m[3]], ".,:;!?)'\"*")
			if i := strings.IndexAny(p, "*?{<[$"); i >= 0 {
				p = p[:strings.LastIndexByte(p[:i], '/')+1]
			}
			add(p, fromInstruction)
			for _, x := range moved {
				if sandboxed.Within(path.Clean(p), x[0]) {
					add(x[1]+strings.TrimPrefix(path.Clean(p), x[0]), fromInstruction)
				}
			}
		}
	}
	for _, a := range artifacts {
		if !path.IsAbs(a) {
			a = path.Join(dir, a)
		}
		add(a, from)
	}
	switch {
	case len(named) > 0:
	case dir == "":
		out = append(out, record.WorkPath{From: fromImage})
	case folderIsWork(path.Clean(dir)):
		add(dir, fromDir)
	}
	slices.SortFunc(out, func(a, b record.WorkPath) int { return strings.Compare(a.Path, b.Path) })
	return out
}

// CheckWork returns the error of the option work: it names the root, or a folder of the system, in
// which only single files are work.
func CheckWork(names []string) error {
	for _, p := range names {
		clean := path.Clean(p)
		switch {
		case p == "" || clean == "/" || clean == ".." || strings.HasPrefix(clean, "../"):
			return fmt.Errorf("work: %q is no path inside of the machine's folders", p)
		case slices.Contains(homes, clean), slices.Contains(systemDirs, clean):
			return fmt.Errorf("work: the folder %s has more than an agent's work; name the files or folders in it", clean)
		}
	}
	return nil
}

func folderIsWork(dir string) bool {
	return !slices.Contains(homes, dir) && !(path.Dir(dir) == "/home") &&
		!slices.ContainsFunc(systemDirs, func(s string) bool { return sandboxed.Within(dir, s) })
}

// isWork reports whether the file or folder at name belongs to the work at these paths.
func isWork(paths []string, name string, folder bool) bool {
	return slices.ContainsFunc(paths, func(w string) bool {
		if name == w {
			return !folder || folderIsWork(w)
		}
		return folderIsWork(w) && sandboxed.Within(name, w)
	})
}

// Work is what evidence says of the agent's work. The files are a tar of absolute names without
// the first slash, under [workKey]. If there is little of it, what the agent changed elsewhere is
// among them: it is work if the oracle's work needs it.
type Work struct {
	Paths []string `json:"paths"`
	// Gone are files and folders of the work that the agent removed, and what files or links of other
	// content came for, which may have been folders; each quoted as in Go.
	Gone []string `json:"gone,omitempty"`
	// Turned are folders in the place of files, and files in the place of folders; each quoted as in Go.
	Turned []string `json:"turned,omitempty"`
	// New are folders that the agent made, without those in others of them; each quoted as in Go.
	New []string `json:"new,omitempty"`
	// Owners are the files of others than root, by "UID:GID"; each quoted as in Go.
	Owners map[string][]string `json:"owners,omitempty"`
	// Unkept says that there was too much outside of the work to keep all of it.
	Unkept bool `json:"unkept,omitempty"`
	// Grown says what of the work could not be kept.
	Grown string `json:"grown,omitempty"`

	names int // bytes of the names in the lists
}

// A Collection is what [Guard.Collect] found. The zero value is that of a machine in which nothing
// is looked for.
type Collection struct {
	Work    *Work
	Files   map[string]event.Blob // of the evidence
	Changes []record.FolderChanges
	Origins []record.WorkPath // of Work.Paths
}

// Keys of an evidence's files. The list of changes has a line for each, such as "+ /etc/x", with
// names quoted as in Go where needed.
const (
	workKey    = "work"
	changesKey = "changes"
)

// maxChangeList limits the list of changes in bytes; the rest is counted.
const maxChangeList = 1 << 20

// Collect looks for what the agent has changed since [Watch], and keeps the part of it that is
// work. It is called once, when the agent has ended, before anything else is put into the machine.
func (g *Guard) Collect(ctx context.Context, log event.Log) (out Collection, err error) {
	if g.m == nil || g.replay || !g.mode.confirms() {
		return out, nil
	}
	if err := g.Ready(ctx); err != nil {
		return out, err
	}
	w := &Work{Paths: g.work}
	out.Work, out.Origins = w, g.origins
	var files, rest []executor.FileChange // of the work, and elsewhere
	var restSize int64
	linked, unlisted := 0, false
	whole := "" // the new folder that came last
	var list bytes.Buffer
	var size int64
	var counts folderCounts
	err = g.changes(ctx, func(c executor.FileChange, work bool) {
		if list.Len() < maxChangeList {
			listChange(&list, c)
		} else if !work {
			unlisted = true
		}
		counts.add(c, work)
		kind := c.Mode & 0o170000
		if !work {
			switch {
			case !movable(c):
			case len(rest) == maxRestFiles || c.Size > maxRestBytes-restSize:
				w.Unkept = true
			default:
				rest, restSize = append(rest, c), restSize+c.Size
			}
			return
		}
		switch {
		case c.What == executor.Mounted, compiled(c.Path):
		case len(files) > maxWorkFiles, len(w.Gone) > maxWorkFiles, w.names > maxWorkNames: // it is too much already
		case c.What == executor.Gone:
			w.Gone = append(w.Gone, w.quote(c.Path))
		default:
			if kind == 0o120000 && !linkAllowed(c.Path, c.Target, g.work) {
				g.doubt("%s is a link that leads out of the work", c.Path)
			}
			if kind == 0o100000 {
				if size += c.Size; c.Links > 1 {
					linked++
				}
			}
			if kind == 0o040000 && c.What == executor.Added &&
				(whole == "" || !sandboxed.Within(c.Path, whole)) {
				whole = c.Path
				w.New = append(w.New, w.quote(c.Path))
			}
			if c.Turned {
				w.Turned = append(w.Turned, w.quote(c.Path))
			}
			files = append(files, c)
			w.replaced(c)
		}
	})
	if err != nil {
		return out, err
	}
	if unlisted {
		g.doubt("more was changed outside of the work than can be listed")
	}
	if linked > 0 {
		g.doubt("files of the work that have several names: %d", linked)
	}
	out.Files, out.Changes = map[string]event.Blob{}, counts.list()
	if list.Len() > 0 {
		blob, err := log.PutBlob(ctx, "text/plain; charset=utf-8", &list)
		if err != nil {
			return out, err
		}
		out.Files[changesKey] = blob
	}
	if len(files) > maxWorkFiles || len(w.Gone) > maxWorkFiles {
		w.grow("the agent changed more than %d files of its work", maxWorkFiles)
		return out, nil
	}
	if w.names > maxWorkNames {
		w.grow("the names of the files of the work have more than %d MiB", maxWorkNames>>20)
		return out, nil
	}
	if size > maxWorkBytes { // pack finds this out as well, but only by reading that much
		w.grow("the work has more than %d MiB", maxWorkBytes>>20)
		return out, nil
	}
	blob, refused, fault, err := g.keep(ctx, log, files, rest)
	if err != nil && len(rest) > 0 && ctx.Err() == nil {
		rest, w.Unkept = nil, true
		blob, refused, fault, err = g.keep(ctx, log, files, nil)
	}
	for _, c := range rest {
		w.replaced(c)
	}
	switch {
	case errors.Is(err, sandbox.ErrTooLarge):
		w.grow("%v", sandboxed.Cause(err))
		return out, nil
	case err != nil && fault && Responds(ctx, g.sb):
		w.grow("%v", sandboxed.Cause(err))
		return out, nil
	case err != nil:
		return out, err
	}
	if refused > 0 {
		w.Grown = fmt.Sprintf("%d files of the work are no files, folders or links, or have names that cannot be kept",
			refused)
	}
	out.Files[workKey] = blob
	return out, nil
}

// keep keeps files as a blob. refused counts those of the work that cannot be kept, and fault says
// that an error was in reading them.
func (g *Guard) keep(ctx context.Context, log event.Log, files, rest []executor.FileChange) (_ event.Blob, refused int,
	fault bool, err error) {
	p := &packer{most: maxWorkFiles + maxRestFiles, left: maxWorkBytes + maxRestBytes, exclude: compiled}
	r, pw := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		out := tar.NewWriter(pw)
		err := g.pack(ctx, p, out, files, true)
		if refused = p.refused; err == nil {
			err = g.pack(ctx, p, out, rest, false)
		}
		if err == nil {
			err = out.Close()
		}
		pw.CloseWithError(err)
	}()
	blob, err := log.PutBlob(ctx, "application/x-tar", r)
	r.CloseWithError(io.ErrClosedPipe)
	<-done
	return blob, refused, p.readFailed, err
}

// loaderCache is made again by [Guard.Restore], because it can lead every program to other libraries
// than those that are kept.
const loaderCache = "/etc/ld.so.cache"

// movable reports whether a change outside of the work can be kept: files, links and new folders, but
// none of those that the harness puts there.
func movable(c executor.FileChange) bool {
	kind := c.Mode & 0o170000
	return (c.What == executor.Added || c.What == executor.Altered && kind != 0o040000) &&
		(kind == 0o100000 || kind == 0o120000 || kind == 0o040000) &&
		!compiled(c.Path) && !slices.ContainsFunc([]string{"/logs", "/tests", "/solution", "/oracle"},
		func(dir string) bool { return sandboxed.Within(c.Path, dir) })
}

// replaced notes what has to be removed before the file is put in place, and the owner.
func (w *Work) replaced(c executor.FileChange) {
	if c.What == executor.Altered && c.Mode&0o170000 != 0o040000 {
		w.Gone = append(w.Gone, w.quote(c.Path))
	}
	if c.UID != 0 || c.GID != 0 {
		if w.Owners == nil {
			w.Owners = map[string][]string{}
		}
		who := fmt.Sprintf("%d:%d", c.UID, c.GID)
		w.Owners[who] = append(w.Owners[who], w.quote(c.Path))
	}
}

// quote returns a name as the lists have it.
func (w *Work) quote(name string) string {
	name = strconv.Quote(name)
	w.names += len(name)
	return name
}

// grow drops the lists of work that could not be kept, and says why.
func (w *Work) grow(format string, args ...any) {
	*w = Work{Paths: w.Paths, Grown: score.Clean(fmt.Sprintf(format, args...))}
}

// maxCounted limits the folders whose changes are counted one by one.
const maxCounted = 4096

// folderCounts counts changes by folder.
type folderCounts struct {
	by   map[folderKey]*record.FolderChanges
	rest record.FolderChanges // in folders beyond maxCounted
}

type folderKey struct {
	folder string
	work   bool
}

func (f *folderCounts) add(c executor.FileChange, work bool) {
	key := folderKey{pathName(path.Dir(c.Path)), work}
	n := f.by[key]
	switch {
	case n == nil && len(f.by) == maxCounted:
		n = &f.rest
	case n == nil:
		if f.by == nil {
			f.by = map[folderKey]*record.FolderChanges{}
		}
		n = &record.FolderChanges{Folder: key.folder, Work: work}
		f.by[key] = n
	}
	switch c.What {
	case executor.Added:
		n.Created++
	case executor.Gone:
		n.Removed++
	default:
		n.Changed++
	}
}

// list returns the folders with the most changes first, and then the sum of the others.
func (f *folderCounts) list() (out []record.FolderChanges) {
	for _, n := range f.by {
		out = append(out, *n)
	}
	all := func(n record.FolderChanges) int64 { return n.Created + n.Changed + n.Removed }
	slices.SortFunc(out, func(a, b record.FolderChanges) int {
		first := 1
		if a.Work {
			first = -1
		}
		return cmp.Or(cmp.Compare(all(b), all(a)), strings.Compare(a.Folder, b.Folder), first)
	})
	rest := f.rest
	for i := record.MaxFolders; i < len(out); i++ {
		rest.Created += out[i].Created
		rest.Changed += out[i].Changed
		rest.Removed += out[i].Removed
	}
	if out = out[:min(len(out), record.MaxFolders)]; all(rest) > 0 {
		out = append(out, rest)
	}
	return out
}

// pathName returns a path of the machine as the record keeps it.
func pathName(name string) string { return score.Clip(score.Clean(name), 1<<10) }

// listChange writes the line of a change.
func listChange(b *bytes.Buffer, c executor.FileChange) {
	mark := map[byte]string{executor.Added: "+", executor.Altered: "~", executor.Gone: "-", executor.Mounted: "mount"}
	name := c.Path
	if q := strconv.Quote(name); q[1:len(q)-1] != name {
		name = q
	}
	fmt.Fprintf(b, "%s %s\n", mark[c.What], name)
}

// changeList calls f for each line of the list of changes that was kept.
func changeList(ctx context.Context, log event.Log, files map[string]event.Blob, f func(mark, name string)) error {
	r, err := openKept(ctx, log, files, changesKey)
	if r == nil || err != nil {
		return err
	}
	defer r.Close()
	text, err := io.ReadAll(io.LimitReader(r, 2*maxChangeList))
	if err != nil {
		return fmt.Errorf("reading the list of changes: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		mark, name, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if s, err := strconv.Unquote(name); err == nil {
			name = s
		}
		f(mark, name)
	}
	return nil
}

// pack adds changed files to a tar. With folders, a new folder is read as a whole, other files one by
// one.
func (g *Guard) pack(ctx context.Context, p *packer, out *tar.Writer, files []executor.FileChange, folders bool) error {
	whole := "" // the new folder that was read last
	reads := 0
	for _, c := range files {
		if whole != "" && sandboxed.Within(c.Path, whole) {
			continue
		}
		folder := c.Mode&0o170000 == 0o040000
		if folder && (c.What != executor.Added || !folders) { // its entries have changes of their own
			if err := out.WriteHeader(&tar.Header{Name: strings.TrimPrefix(c.Path, "/") + "/", Typeflag: tar.TypeDir,
				Mode: int64(c.Mode & 0o7777), Format: tar.FormatPAX}); err != nil {
				p.refused++
			}
			continue
		}
		if folder {
			whole = c.Path
		}
		if reads++; reads > maxWorkReads {
			p.readFailed = true
			return fmt.Errorf("%w: the agent changed more than %d files of folders that were there before",
				sandbox.ErrTooLarge, maxWorkReads)
		}
		r, err := g.sb.Get(ctx, c.Path)
		if errors.Is(err, fs.ErrNotExist) { // a process that the agent left removed it
			continue
		}
		if err != nil {
			p.readFailed = true
			return err
		}
		p.tar = r
		err = p.entries(out, strings.TrimPrefix(path.Dir(c.Path), "/"))
		r.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// compiled reports whether a file is compiled Python that Python makes again. It can be made not to
// match its source.
func compiled(name string) bool {
	return strings.HasSuffix(name, ".pyc") && path.Base(path.Dir(name)) == "__pycache__"
}

// Restore puts the work that was kept into a fresh machine, but for what without names, links to
// such work, and links that lead to what the verifier brings. A nil without leaves out what is not
// work. why says what the agent made impossible.
func (g *Guard) Restore(ctx context.Context, log event.Log, w *Work, files map[string]event.Blob,
	without func(name string) bool) (why string, err error) {
	blob, ok := files[workKey]
	if !ok {
		return "", nil
	}
	put := func(err error) (string, error) {
		if ctx.Err() == nil && Responds(ctx, g.sb) {
			return "the work cannot be put into a fresh machine: " + score.Clean(sandboxed.Cause(err).Error()), nil
		}
		return "", err
	}
	gone, err := unquoted(w.Gone)
	if err != nil {
		return "", err
	}
	if without == nil {
		without = func(name string) bool { return !isWork(w.Paths, name, false) }
	}
	relink := false // the loader's cache was changed
	gone = slices.DeleteFunc(gone, func(name string) bool { return name == loaderCache || without(name) })
	if err := g.batches(ctx, gone, "rm", "-rf", "--"); err != nil {
		return put(err)
	}
	r, err := log.OpenBlob(ctx, blob)
	if err != nil {
		return "", err
	}
	defer r.Close()
	at, size, done, err := spool(r)
	if err != nil {
		return "", fmt.Errorf("reading the work: %w", err)
	}
	defer done()
	t := filetree.New()
	err = t.Untar(at, size, func(h *tar.Header) bool {
		name := "/" + path.Clean(h.Name)
		if h.Typeflag == tar.TypeSymlink {
			target := linkTarget(name, h.Linkname)
			return !without(name) && !(isWork(w.Paths, target, false) && without(target)) &&
				linkAllowed(name, h.Linkname, w.Paths)
		}
		if name == loaderCache {
			relink = !without(name)
			return false
		}
		return !without(name)
	})
	if err != nil {
		return "", fmt.Errorf("reading the work: %w", err)
	}
	if err := g.sb.Put(ctx, "/", t); err != nil {
		return put(err)
	}
	for _, who := range slices.Sorted(maps.Keys(w.Owners)) {
		list, err := unquoted(w.Owners[who])
		if err != nil {
			return "", err
		}
		list = slices.DeleteFunc(list, func(name string) bool { return t.Get(strings.TrimPrefix(name, "/")) == nil })
		if err := g.batches(ctx, list, "chown", "-h", who, "--"); err != nil {
			return put(err)
		}
	}
	if relink {
		if _, err := g.sb.Exec(ctx, sandbox.Command{Args: []string{"ldconfig"}, User: root}); err != nil {
			return put(err)
		}
	}
	return "", nil
}

// linkTarget returns what a link leads to, if no other link is on the way.
func linkTarget(name, link string) string {
	if path.IsAbs(link) {
		return path.Clean(link)
	}
	return path.Join(path.Dir(name), link)
}

// batches runs a command of the image with many names.
func (g *Guard) batches(ctx context.Context, names []string, args ...string) error {
	for chunk := range slices.Chunk(names, 200) {
		x, err := g.sb.Exec(ctx, sandbox.Command{Args: append(slices.Clip(slices.Clone(args)), chunk...), User: root})
		if err == nil && x.Code != 0 {
			err = &sandbox.Error{Op: args[0], ID: g.sb.ID(), Inside: true,
				Err: fmt.Errorf("%s ended with status %d", args[0], x.Code)}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func unquoted(list []string) ([]string, error) {
	out := make([]string, len(list))
	for i, q := range list {
		s, err := strconv.Unquote(q)
		if err != nil || !path.IsAbs(s) {
			return nil, fmt.Errorf("reading the evidence: %q is no quoted path", q)
		}
		out[i] = s
	}
	return out, nil
}

// openKept opens what was kept under a key; nil: nothing was.
func openKept(ctx context.Context, log event.Log, files map[string]event.Blob, key string) (io.ReadCloser, error) {
	blob, ok := files[key]
	if !ok {
		return nil, nil
	}
	return log.OpenBlob(ctx, blob)
}

// workFiles calls f for all files, folders and links of the work that was kept.
func workFiles(ctx context.Context, log event.Log, files map[string]event.Blob,
	f func(name, link string)) error {
	r, err := openKept(ctx, log, files, workKey)
	if r == nil || err != nil {
		return err
	}
	defer r.Close()
	tr := tar.NewReader(r)
	for {
		h, err := tr.Next()
		if err == io.EOF {
			_, err = io.Copy(io.Discard, r)
			return err
		}
		if err != nil {
			return fmt.Errorf("reading the work: %w", err)
		}
		f("/"+path.Clean(h.Name), h.Linkname)
	}
}
