package docker

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/evalrun/evalrun/runtime/sandbox"
	"github.com/moby/moby/client"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// A pipe where the engine looks for users would stop the engine for everybody.
func TestAccounts(t *testing.T) {
	d := require(t)
	cli := api(t, d)
	for ref, headers := range map[string][]tar.Header{
		"evalrun-test/accounts-pipe:1": {{Typeflag: tar.TypeDir, Name: "etc/", Mode: 0o755},
			{Typeflag: tar.TypeFifo, Name: "etc/passwd", Mode: 0o644}},
		"evalrun-test/accounts-link:1": {{Typeflag: tar.TypeDir, Name: "etc/", Mode: 0o755},
			{Typeflag: tar.TypeFifo, Name: "pipe", Mode: 0o644},
			{Typeflag: tar.TypeSymlink, Name: "etc/group", Linkname: "../pipe"}},
	} {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, h := range headers {
			if err := w.WriteHeader(&h); err != nil {
				t.Fatal(err)
			}
		}
		w.Close()
		r, err := cli.ImageImport(t.Context(), client.ImageImportSource{Source: &b, SourceName: "-"}, ref,
			client.ImageImportOptions{Platform: ocispec.Platform{OS: "linux"}})
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, r)
		r.Close()
		_, err = d.Create(t.Context(), sandbox.Spec{Owner: sandbox.Self(), Image: sandbox.Image{Ref: ref}})
		if !errors.As(err, new(*sandbox.Unsupported)) {
			t.Errorf("%s: error %v", ref, err)
		}
		if _, err := cli.ImageRemove(t.Context(), ref, client.ImageRemoveOptions{}); err != nil {
			t.Error(err)
		}
	}
}
