package webarena

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"image"
	"image/png"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// A picture is part of a goal.
type picture struct {
	address string // "" if it is a file of the user
	file    string // path of the file that the agent can upload
	data    string // data: URL of the picture as PNG
}

// mostPicture is the maximum size of a picture file.
const mostPicture = 32 << 20

// folder returns a function that opens the user's pictures in dir. Paths cannot lead out of dir.
func folder(dir string) func(string) (image.Image, error) {
	return func(name string) (image.Image, error) {
		root, err := os.OpenRoot(dir)
		if err != nil {
			return nil, err
		}
		defer root.Close()
		f, err := root.Open(filepath.FromSlash(name))
		if err != nil {
			return nil, err
		}
		defer f.Close()
		raw, err := io.ReadAll(io.LimitReader(f, mostPicture+1))
		if err != nil {
			return nil, err
		}
		if len(raw) > mostPicture {
			return nil, fmt.Errorf("%s is larger than %d MiB", name, mostPicture>>20)
		}
		return decode(raw)
	}
}

// goalPictures reads the pictures of a goal and writes each to a file in dir, for uploads.
func (e *Evaluator) goalPictures(ctx context.Context, names []string, dir string) ([]picture, error) {
	var out []picture
	for i, name := range names {
		img, err := e.picture(ctx, name)
		if err != nil {
			return nil, fmt.Errorf("the goal's picture %s: %w", name, err)
		}
		var b bytes.Buffer
		if err := png.Encode(&b, img); err != nil {
			return nil, fmt.Errorf("the goal's picture %s: %w", name, err)
		}
		p := picture{data: "data:image/png;base64," + base64.StdEncoding.EncodeToString(b.Bytes()),
			file: filepath.Join(dir, fmt.Sprintf("input_image_%d.png", i))}
		if strings.HasPrefix(name, "http") {
			p.address = name
		}
		if err := os.WriteFile(p.file, b.Bytes(), 0o644); err != nil {
			return nil, fmt.Errorf("the goal's picture %s: %w", name, err)
		}
		out = append(out, p)
	}
	return out, nil
}
