package fileop

import (
	"bytes"
	"fmt"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

// kindOf returns the media type of what is viewed as data, by the first bytes, or "".
func kindOf(b []byte) string {
	for _, k := range []struct{ begin, kind string }{{"\x89PNG\r\n\x1a\n", "image/png"}, {"\xff\xd8\xff", "image/jpeg"},
		{"GIF87a", "image/gif"}, {"GIF89a", "image/gif"}, {"%PDF-", "application/pdf"}} {
		if bytes.HasPrefix(b, []byte(k.begin)) {
			return k.kind
		}
	}
	if len(b) > 12 && string(b[:4]) == "RIFF" && string(b[8:12]) == "WEBP" {
		return "image/webp"
	}
	return ""
}

// data returns an image or a PDF.
func (r request) data(f *file) (res sandbox.FileResult, err error) {
	if len(r.Lines) > 0 {
		return res, fmt.Errorf("view_range is for texts, and %s is no text", r.Path)
	}
	res.Type = kindOf(f.raw)
	if res.Type == "application/pdf" {
		res.Text = fmt.Sprintf("%s is a PDF of %d bytes. It is not shown as text; pdftotext or a library of Python "+
			"extracts its text.\n", r.Path, len(f.raw))
	} else if len(f.raw) > sandbox.MaxImage {
		return res, fmt.Errorf("%s is an image of %d bytes, and at most %d are shown; make a smaller copy", r.Path,
			len(f.raw), sandbox.MaxImage)
	} else {
		res.Text = fmt.Sprintf("%s is an image (%s, %d bytes).\n", r.Path, res.Type, len(f.raw))
	}
	res.Data = f.raw
	return res, nil
}
