package verify

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/benchmarks/harbor/format"
	"github.com/evalrun/evalrun/benchmarks/score"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/benchmarks/filetree"
	"github.com/evalrun/evalrun/benchmarks/sandboxed"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// Bounds of what is kept of a stage's artifacts.
const (
	maxArtifactFiles = 20_000
	maxArtifactBytes = 256 << 20 // of one artifact
	maxArtifacts     = 1 << 30   // of all of them
)

// An Artifact is a line of artifacts/manifest.json: what became of one that was to be kept.
type Artifact struct {
	Source      string `json:"source"`
	Destination string `json:"destination"`
	Type        string `json:"type,omitempty"` // "file" or "directory"
	Status      string `json:"status"`         // "ok", "failed", "empty", "skipped"
	Service     string `json:"service"`
	Why         string `json:"why,omitempty"`
	// LeftOut: something that the agent left there could not be kept.
	LeftOut bool `json:"left_out,omitempty"`
}

// key names an artifact's tar among an evidence's files.
func (k Artifact) key() string { return "artifacts/" + k.Destination }

// A Collector keeps artifacts in a stage's evidence: each as a tar of files, folders and links,
// with modes and times but no owners.
type Collector struct {
	Log event.Log

	files map[string]event.Blob
	list  []Artifact
	bytes int64
}

// Collect keeps one artifact of a machine. What is wrong with the artifact is recorded in the
// manifest; an error is an infrastructure failure. dir is the working directory.
func (c *Collector) Collect(ctx context.Context, sb sandbox.Sandbox, dir string, a format.Artifact) error {
	k := Artifact{Source: a.Source, Destination: a.Destination, Service: a.Service, Status: "ok"}
	source := a.Source
	if !path.IsAbs(source) {
		source = path.Join(dir, source)
	}
	if k.Service == "" {
		k.Service = format.MainService
	}
	if k.Destination == "" {
		k.Destination = strings.TrimPrefix(path.Clean(source), "/")
	}
	k.Source = path.Clean(source)
	defer func() { c.list = append(c.list, k) }()
	if slices.ContainsFunc(c.list, func(o Artifact) bool { return o.Destination == k.Destination }) {
		k.Status, k.Why = "skipped", "another artifact has this destination"
		return nil
	}
	r, err := sb.Get(ctx, source)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		k.Status, k.Why = "failed", "it does not exist"
		if source == format.ArtifactsDir {
			k.Status, k.Why = "empty", ""
		}
		return nil
	case err != nil && Responds(ctx, sb):
		k.Status, k.Why = "failed", score.Clean(sandboxed.Cause(err).Error())
		return nil
	case err != nil:
		return err
	}
	defer r.Close()
	p := &packer{tar: r, exclude: excluder(a.Exclude), most: maxArtifactFiles,
		left: min(maxArtifactBytes, maxArtifacts-c.bytes)}
	blob, err := p.keep(ctx, c.Log)
	var tooMuch *sandbox.FileError
	switch {
	case errors.As(err, &tooMuch):
		k.Status, k.Why, k.LeftOut = "failed", score.Clean(tooMuch.Error()), true
		return nil
	case err != nil && Responds(ctx, sb) && p.readFailed:
		k.Status, k.Why, k.LeftOut = "failed", score.Clean(sandboxed.Cause(err).Error()), true
		return nil
	case err != nil:
		return err
	}
	c.bytes += p.bytes
	k.Type = p.kind
	if k.Type == "" || k.Type == "directory" && p.files == 0 {
		k.Status = "empty"
		if k.Type == "" {
			k.Status, k.Why = "failed", "it is neither a file nor a folder"
		}
		return nil
	}
	if p.refused > 0 {
		k.Why = fmt.Sprintf("%d entries were left out: folders nested too deep, paths too long, or files that "+
			"cannot be read", p.refused)
		k.LeftOut = true
	}
	if c.files == nil {
		c.files = map[string]event.Blob{}
	}
	c.files[k.key()] = blob
	return nil
}

// Finish keeps the manifest, as Harbor writes it, and returns the evidence's files and its lines.
func (c *Collector) Finish(ctx context.Context) (map[string]event.Blob, []Artifact, error) {
	raw, err := json.MarshalIndent(c.list, "", "  ")
	if err != nil {
		return nil, nil, err
	}
	blob, err := c.Log.PutBlob(ctx, "application/json", strings.NewReader(string(raw)))
	if err != nil {
		return nil, nil, err
	}
	if c.files == nil {
		c.files = map[string]event.Blob{}
	}
	c.files["artifacts/manifest.json"] = blob
	return c.files, c.list, nil
}

// A packer makes a clean tar of a hostile one.
type packer struct {
	tar     io.Reader
	exclude func(name string) bool
	most    int   // files of one archive
	left    int64 // bytes

	kind           string // of the first entry
	files, refused int
	bytes          int64
	readFailed     bool // an error was of the stream from the machine, not of the store
}

func (p *packer) keep(ctx context.Context, log event.Log) (event.Blob, error) {
	r, w := io.Pipe()
	go func() { w.CloseWithError(p.copy(w)) }()
	blob, err := log.PutBlob(ctx, "application/x-tar", r)
	r.CloseWithError(io.ErrClosedPipe)
	return blob, err
}

func (p *packer) copy(w io.Writer) error {
	out := tar.NewWriter(w)
	if err := p.entries(out, ""); err != nil {
		return err
	}
	return out.Close()
}

// entries copies the entries of p.tar below a folder.
func (p *packer) entries(out *tar.Writer, dir string) error {
	for f, err := range sandbox.Files(p.tar, sandbox.Limits{Files: p.most, Bytes: max(p.left, 1)}) {
		if errors.As(err, new(*sandbox.FileError)) && !errors.Is(err, sandbox.ErrTooLarge) {
			p.refused++
			continue
		}
		if err != nil {
			p.readFailed = true
			return err
		}
		if f.Name = path.Join(dir, f.Name); p.exclude(f.Name) {
			continue
		}
		h := &tar.Header{Name: f.Name, Mode: int64(f.Mode.Perm()), Typeflag: tar.TypeReg, Size: f.Size,
			ModTime: f.ModTime, Format: tar.FormatPAX}
		switch {
		case f.Mode.IsDir():
			h.Typeflag, h.Name = tar.TypeDir, f.Name+"/"
		case f.Mode&fs.ModeSymlink != 0:
			h.Typeflag, h.Linkname, h.Size = tar.TypeSymlink, f.Link, 0
		}
		if p.kind == "" {
			p.kind = "file"
			if f.Mode.IsDir() {
				p.kind = "directory"
			}
		}
		if err := out.WriteHeader(h); err != nil {
			p.refused++ // a name that no tar can hold
			continue
		}
		if !f.Mode.IsDir() {
			p.files++
		}
		if f.Mode.IsRegular() {
			n, err := io.Copy(out, f)
			p.bytes, p.left = p.bytes+n, p.left-n
			if err != nil {
				p.readFailed = true
				return err
			}
		}
	}
	return nil
}

// excluder reports whether one of tar's exclude patterns fits a name: a pattern fits whole
// elements, from any of them on, and "*" also passes slashes.
func excluder(patterns []string) func(string) bool {
	var all []*regexp.Regexp
	for _, p := range patterns {
		p = strings.TrimSuffix(strings.TrimPrefix(p, "./"), "/")
		var b strings.Builder
		b.WriteString(`(?s)(?:^|/)`)
		for i := 0; i < len(p); i++ {
			switch c := p[i]; c {
			case '*':
				b.WriteString(`.*`)
			case '?':
				b.WriteString(`.`)
			case '[':
				if end := strings.IndexByte(p[i+1:], ']'); end > 0 {
					set := strings.ReplaceAll(p[i+1:i+1+end], `\`, `\\`)
					if strings.HasPrefix(set, "!") {
						set = "^" + set[1:]
					}
					b.WriteString("[" + set + "]")
					i += end + 1
					continue
				}
				b.WriteString(`\[`)
			default:
				b.WriteString(regexp.QuoteMeta(string(c)))
			}
		}
		b.WriteString(`(?:/|$)`)
		if re, err := regexp.Compile(b.String()); err == nil {
			all = append(all, re)
		}
	}
	return func(name string) bool {
		return slices.ContainsFunc(all, func(re *regexp.Regexp) bool { return re.MatchString(name) })
	}
}

// restore puts artifacts where they came from, into a fresh machine, and leaves out links that lead
// elsewhere. why says what the agent made impossible.
func restore(ctx context.Context, sb sandbox.Sandbox, log event.Log, ev map[string]event.Blob,
	list []Artifact) (why string, err error) {
	var roots []string
	for _, k := range list {
		if k.Status == "ok" {
			roots = append(roots, k.Source)
		}
	}
	for _, k := range list {
		blob, ok := ev[k.key()]
		if k.Status != "ok" || !ok {
			continue
		}
		if why, err := restoreOne(ctx, sb, log, blob, k, roots); why != "" || err != nil {
			return why, err
		}
	}
	return "", nil
}

func restoreOne(ctx context.Context, sb sandbox.Sandbox, log event.Log, blob event.Blob, k Artifact,
	roots []string) (string, error) {
	r, err := log.OpenBlob(ctx, blob)
	if err != nil {
		return "", err
	}
	defer r.Close()
	at, size, done, err := spool(r)
	if err != nil {
		return "", fmt.Errorf("reading the artifact %s: %w", k.Destination, err)
	}
	defer done()
	dir := path.Dir(k.Source)
	t := filetree.New()
	err = t.Untar(at, size, func(h *tar.Header) bool {
		return h.Typeflag != tar.TypeSymlink || linkAllowed(path.Join(dir, path.Clean(h.Name)), h.Linkname, roots)
	})
	if err != nil {
		return "", fmt.Errorf("reading the artifact %s: %w", k.Destination, err)
	}
	if err := sb.Put(ctx, dir, t); err != nil {
		if ctx.Err() == nil && Responds(ctx, sb) {
			return fmt.Sprintf("the artifact %s cannot be put into the verifier's machine: %v", k.Source,
					sandboxed.Cause(err)),
				nil
		}
		return "", err
	}
	return "", nil
}

// spool makes a stream one that can be read anywhere: in memory when it is small, else by a file
// that nobody sees.
func spool(r io.Reader) (at io.ReaderAt, size int64, done func(), err error) {
	const small = 1 << 20
	head, err := io.ReadAll(io.LimitReader(r, small))
	if err != nil {
		return nil, 0, nil, err
	}
	if len(head) < small {
		return strings.NewReader(string(head)), int64(len(head)), func() {}, nil
	}
	f, err := os.CreateTemp("", "evalrun-artifact-")
	if err != nil {
		return nil, 0, nil, err
	}
	os.Remove(f.Name())
	if _, err = f.Write(head); err == nil {
		size, err = io.Copy(f, r)
	}
	if err != nil {
		f.Close()
		return nil, 0, nil, err
	}
	return f, size + int64(len(head)), func() { f.Close() }, nil
}

// programs are folders that links may lead to from anywhere, as those of a virtual environment do.
var programs = []string{"/usr", "/bin", "/sbin", "/lib", "/lib64", "/opt"}

// linkAllowed reports whether a link of the agent's at the path at leads to an artifact or to
// programs. Any other could lead the verifier to its own files: the tests, which hold what is
// right, /proc and /dev.
func linkAllowed(at, link string, roots []string) bool {
	to, ok := sandboxed.LinkTarget(at, link)
	below := func(dir string) bool { return sandboxed.Within(to, dir) }
	return ok && !slices.ContainsFunc([]string{"/proc", "/dev", "/tests", "/logs/verifier"}, below) &&
		(slices.ContainsFunc(programs, below) || slices.ContainsFunc(roots, below))
}
