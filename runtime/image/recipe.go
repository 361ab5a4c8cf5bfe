package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

// A recipe is all that a build needs, and its name.
type recipe struct {
	key     string // digest of what goes in
	tag     string
	fsys    fs.FS
	entries []entry
	hidden  []hidden // the build's own files, the Dockerfile too when the context has no such one
	moved   bool     // the context lies in contextDir
	file    string   // the Dockerfile's name
	bases   []base
	final   string
	img     sandbox.Image
	classic bool
}

// repository is the name of all images that we build; their tags are their keys.
const repository = "evalrun/image"

// Labels of images. An image that is built upon another inherits them, so what counts is that the
// key fits the tag.
const (
	labelKey   = "evalrun.image"       // the key
	labelBases = "evalrun.image.bases" // what it was built upon, by ID
	labelUnder = "evalrun.image.under" // bytes of its base's layers
	labelBuild = "evalrun.build"       // also of what a build leaves on its way
)

// Labels are all that images of ours have. Containers inherit them.
var Labels = []string{labelKey, labelBases, labelUnder, labelBuild}

// keyVersion changes when the same input makes another image.
const keyVersion = 1

// recipe reads what a build needs and names it.
func (s *Store) recipe(ctx context.Context, about About, img sandbox.Image) (*recipe, error) {
	r := &recipe{fsys: img.Context, img: img, classic: s.o.Classic || !about.BuildKit}
	var err error
	if r.entries, err = scanContext(ctx, img.Context, s.o.ContextBytes, s.o.ContextFiles, &s.known); err != nil {
		return nil, err
	}
	text := img.Dockerfile
	if text == "" {
		b, err := readSmall(img.Context, "Dockerfile", maxDockerfile)
		if err != nil {
			return nil, err
		}
		text = string(b)
	}
	platformOf(&about, img.Platform)
	j := &judge{about: about, classic: r.classic, offline: img.Network == "none", args: img.Args, target: img.Target}
	out, err := j.read(text)
	if err != nil {
		return nil, err
	}
	r.bases, r.final, r.hidden = out.bases, out.final, out.files
	r.place(out.d)
	if r.key, err = r.digest(about); err != nil {
		return nil, err
	}
	r.tag = repository + ":" + r.key[:32]
	return r, nil
}

// platformOf puts a wanted platform in the place of the engine's own.
func platformOf(about *About, platform string) {
	if os, arch, ok := strings.Cut(platform, "/"); ok {
		about.OS, about.Arch = os, arch
	}
}

// place decides where Dockerfile and context lie. The context's own Dockerfile serves when it says
// the same; else ours lies beside, and where a step copies everything, the context moves into a
// folder, so that the image gets what the task's author sees and no more.
func (r *recipe) place(d *dockerfile) {
	if r.classic {
		d.mark()
	}
	text := d.String()
	i := slices.IndexFunc(r.entries, func(e entry) bool { return e.name == "Dockerfile" })
	if i >= 0 && len(r.hidden) == 0 && r.entries[i].mode.IsRegular() &&
		r.entries[i].sum == sha256.Sum256([]byte(text)) {
		r.file = "Dockerfile"
		return
	}
	taken := slices.ContainsFunc(r.entries, func(e entry) bool { return e.name == hiddenDir })
	if len(r.entries) > 0 && (taken || d.catchesRoot()) {
		r.moved = true
		d.move(r.hidden)
		text = d.String()
	}
	r.file = path.Join(hiddenDir, "Dockerfile")
	r.hidden = append(r.hidden, hidden{r.file, text, 0o644})
}

// digest is of everything that makes the image what it is.
func (r *recipe) digest(about About) (string, error) {
	h := sha256.New()
	enc := json.NewEncoder(h)
	builder := "buildkit"
	if r.classic {
		builder = "classic"
	}
	network := ""
	if r.img.Network == "none" {
		network = "none"
	}
	args := []string{}
	for _, k := range slices.Sorted(maps.Keys(r.img.Args)) {
		args = append(args, k, r.img.Args[k])
	}
	err := enc.Encode([]any{keyVersion, builder, r.file, r.img.Target, about.OS + "/" + about.Arch, network, args})
	for _, f := range r.hidden {
		if err == nil {
			err = enc.Encode([]any{f.name, f.mode, []byte(f.text)})
		}
	}
	for _, e := range r.entries {
		if err == nil {
			err = enc.Encode([]any{e.name, uint32(e.mode), e.size, []byte(e.link), e.sum[:]})
		}
	}
	return hex.EncodeToString(h.Sum(nil)), err
}
