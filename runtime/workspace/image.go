package workspace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	_ "image/gif"
	_ "image/jpeg"
	_ "image/png"
	"slices"
	"sync"

	_ "golang.org/x/image/webp"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// Limits of images, beside sandbox.MaxImage. Services refuse longer sides.
const (
	maxSide   = 8000
	maxPixels = 16 << 20
)

// imageTypes are the types of images that models take.
var imageTypes = []string{"image/png", "image/jpeg", "image/gif", "image/webp"}

// keep stores the image or PDF that is viewed.
func (w *Workspace) keep(ctx context.Context, v event.Viewed, res sandbox.FileResult) (event.Body, error) {
	isImage := slices.Contains(imageTypes, res.Type)
	switch {
	case !isImage && res.Type != "application/pdf" || len(res.Data) > sandbox.MaxEdited: // hostile
		return event.Viewed{Path: v.Path, Text: "this is a binary file", Error: true}, nil
	case w.options.Keep == nil:
		v.Text += "It cannot be shown here.\n"
		return v, nil
	case isImage:
		if err := checkImage(res.Data, res.Type); err != nil {
			return event.Viewed{Path: v.Path, Text: clean([]byte(v.Path)) + " cannot be shown: " + err.Error(), Error: true}, nil
		}
	}
	b, err := w.options.Keep(ctx, res.Type, res.Data)
	if err != nil {
		return nil, err
	}
	v.Blob = &b
	return v, nil
}

// decoding limits the memory of all images that are being checked: one at a time.
var decoding sync.Mutex

// checkImage reports why an image cannot be shown to a model. A service that gets a damaged image
// refuses the whole request, and the conversation would end.
func checkImage(data []byte, kind string) error {
	if len(data) > sandbox.MaxImage {
		return fmt.Errorf("it has more than %d bytes", sandbox.MaxImage)
	}
	c, format, err := image.DecodeConfig(bytes.NewReader(data))
	if err != nil || "image/"+format != kind {
		return errors.New("it is no valid image")
	}
	if c.Width < 1 || c.Height < 1 || max(c.Width, c.Height) > maxSide || c.Width*c.Height > maxPixels {
		return fmt.Errorf("it has %d × %d pixels, and a side may have %d, and all %d; make a smaller copy", c.Width, c.Height,
			maxSide, maxPixels)
	}
	decoding.Lock()
	defer decoding.Unlock()
	if _, _, err := image.Decode(bytes.NewReader(data)); err != nil {
		return errors.New("it is no valid image")
	}
	return nil
}
