package webarena

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	_ "image/gif" // image formats used on pages
	_ "image/jpeg"
	_ "image/png"
	"io/fs"
	"net/http"
	"net/url"
	"strings"

	"github.com/evalrun/evalrun/browsergym/pyrepr"
	_ "golang.org/x/image/webp"
)

// ErrNoCaptioner reports that the task asks about pictures and no vision model is configured.
var ErrNoCaptioner = errors.New("no model that answers questions about pictures is configured: give the run a model " +
	"of the role \"captioner\"")

// pictures implements page_image_query: it asks what a page's pictures show, or whether one of them
// resembles another. Of several queries the last one's score counts, as published, but each query
// must find a picture.
func (e *Evaluator) pictures(ctx context.Context, c *Config, b Browser) (score float64, why string, err error) {
	if len(c.Eval.ImageTest) == 0 {
		return 0, "", wrong("page_image_query is empty")
	}
	for i := range c.Eval.ImageTest {
		q := &c.Eval.ImageTest[i]
		var seen []image.Image
		if err := e.at(ctx, b, q.URL, func(p Page) error {
			seen, err = e.picturesOf(ctx, q, p)
			return err
		}); err != nil {
			return 0, "", err
		}
		if len(seen) == 0 {
			return 0, "no picture at " + q.Class, nil
		}
		if score, why, err = e.query(ctx, q, seen); err != nil {
			return 0, "", err
		}
	}
	return score, why, nil
}

func (e *Evaluator) query(ctx context.Context, q *ImageQuery, seen []image.Image) (float64, string, error) {
	if len(q.Ask) == 0 && q.Like == "" {
		return 0, "", wrong("page_image_query asks for nothing")
	}
	for _, qa := range q.Ask {
		if e.Captioner == nil {
			return 0, "", ErrNoCaptioner
		}
		said, err := e.Captioner.Ask(ctx, seen, "Q: "+qa.Question+" A:")
		if err != nil {
			return 0, "", err
		}
		if !strings.Contains(strings.ToLower(strings.Join(said, "\n")), strings.ToLower(qa.Answer)) {
			return 0, qa.Question + " " + strings.Join(said, ", "), nil
		}
	}
	if q.Like == "" {
		return 1, "", nil
	}
	least := 0.8
	if q.Threshold != nil {
		least = *q.Threshold
	}
	best := -1.0
	for name := range strings.SplitSeq(q.Like, or) {
		want, err := e.picture(ctx, name)
		if err != nil {
			return 0, "", fmt.Errorf("picture %s: %w", name, err)
		}
		for _, got := range seen {
			if best = max(best, similarity(got, want)); best > least {
				return 1, "", nil
			}
		}
	}
	return 0, fmt.Sprintf("the nearest picture is like it by %.3f", best), nil
}

// picture returns a picture that the task names, by address or by file name.
func (e *Evaluator) picture(ctx context.Context, name string) (image.Image, error) {
	if strings.HasPrefix(name, "http") {
		return e.download(ctx, name)
	}
	if e.Picture == nil {
		return nil, wrong("the task has no pictures of its own")
	}
	img, err := e.Picture(name)
	if path, ok := strings.CutPrefix(name, homepageFiles); ok && errors.Is(err, fs.ErrNotExist) &&
		e.Sites.There("homepage") {
		return e.download(ctx, e.Sites["homepage"]+"/"+path)
	}
	return img, err
}

// homepageFiles is the directory of the homepage's files in the published repository.
const homepageFiles = "environment_docker/webarena-homepage/"

// sources returns the addresses of a page's pictures: all visible elements with the role of a
// picture, or those of a class.
const sources = `(selector => {
	if (!selector) return [...document.querySelectorAll('img:not([alt=""]):not([role]), [role~="img"], [role~="image"]')]
		.filter(x => x.checkVisibility({visibilityProperty: true}) && !x.closest('[aria-hidden="true"]')).map(x => x.getAttribute('src'));
	return [...document.querySelectorAll(selector)].flatMap(x => x.tagName === 'IMG' ? [x] : [...x.querySelectorAll('img')]).map(x => x.getAttribute('src'));
})`

// picturesOf returns the pictures of a page that can be downloaded. Requests go only to the task's
// own sites, because the agent can influence the addresses on a page.
func (e *Evaluator) picturesOf(ctx context.Context, q *ImageQuery, p Page) ([]image.Image, error) {
	class := strings.TrimSpace(q.Class)
	if class != "" && class[0] != '.' {
		return nil, wrong("eval_image_class %q is no class", q.Class)
	}
	v, err := evaluate(ctx, p, sources+"("+pyrepr.Repr(pyrepr.Str(class))+")")
	if thrown(err) {
		return nil, wrong("eval_image_class %q: %v", q.Class, err)
	}
	if err != nil {
		return nil, err
	}
	base, err := url.Parse(p.URL())
	if err != nil {
		return nil, nil // an exception means that there are no pictures
	}
	list, _ := v.(pyrepr.List)
	var out []image.Image
	for _, x := range list {
		src, ok := x.(pyrepr.Str)
		if !ok {
			continue
		}
		u, err := base.Parse(string(src))
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || !e.Sites.Allowed(u.String()) {
			continue
		}
		img, err := e.download(ctx, u.String())
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err == nil { // ignore broken pictures
			out = append(out, img)
		}
	}
	return out, nil
}

func (e *Evaluator) download(ctx context.Context, address string) (image.Image, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	raw, err := e.fetch(req)
	if err != nil {
		return nil, err
	}
	return decode(raw)
}

func decode(raw []byte) (image.Image, error) {
	const most = 64 << 20
	c, _, err := image.DecodeConfig(bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	if c.Width <= 0 || c.Height <= 0 || c.Width > most/c.Height {
		return nil, fmt.Errorf("a picture of %d × %d", c.Width, c.Height)
	}
	img, _, err := image.Decode(bytes.NewReader(raw))
	return img, err
}
