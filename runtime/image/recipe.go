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

// A recipe is the complete input of a build, and the image's name.
type recipe struct {
	key     string // digest of the input
	tag     string
	fsys    fs.FS
	entries []entry
	hidden  []hidden // our own files, with the Dockerfile if the context has no identical one
	moved   bool     // the context is in contextDir
	file    string   // name of the Dockerfile
	bases   []base
	final   string
	img     sandbox.Image
	classic bool
}

// repository is the name of all images that we build. Their tags are their keys.
const repository = "evalrun/image"

// Labels of images. Images built upon another inherit its labels, so an image is ours only if its
// key matches its tag.
const (
	labelKey   = "evalrun.image"       // the key
	labelBases = "evalrun.image.bases" // IDs of its base images
	labelUnder = "evalrun.image.under" // bytes of its base's layers
	labelBuild = "evalrun.build"       // set on intermediate images and containers of a build too
)

// Labels are the labels of all images of ours. Containers inherit them.
var Labels = []string{labelKey, labelBases, labelUnder, labelBuild}

// keyVersion is changed when the same input produces another image.
const keyVersion = 1

// recipe collects the input of a build and computes its key.
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
	j := &checker{about: about, classic: r.classic, offline: img.Network == "none", args: img.Args, target: img.Target}
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

// platformOf replaces the engine's platform by the requested one.
func platformOf(about *About, platform string) {
	if os, arch, ok := strings.Cut(platform, "/"); ok {
		about.OS, about.Arch = os, arch
	}
}

// place decides where the Dockerfile and the context are. If the context has the same Dockerfile,
// that is used. Otherwise ours is added to the context; if a step copies everything, the context
// moves to a subdirectory, so that the image does not contain our files.
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

// digest returns a digest of everything that determines the image.
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
