package openai

import (
	"context"
	"io"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/model"
)

// A session's images are opened by its binding, where the configuration has no way of its own.
func TestBlobOfBinding(t *testing.T) {
	m, err := New(Config{Model: "m", BaseURL: "http://127.0.0.1:1/v1"})
	if err != nil {
		t.Fatal(err)
	}
	c, err := m.Client(model.Binding{Blob: func(context.Context, event.Blob) (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader("png")), nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	got, err := c.(*Model).image(t.Context(), event.Blob{Type: "image/png"})
	if err != nil || got != "data:image/png;base64,cG5n" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := m.image(t.Context(), event.Blob{Type: "image/png"}); err == nil {
		t.Error("the model itself has a way to open blobs now")
	}
}
