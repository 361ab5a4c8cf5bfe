package docker

import (
	"context"
	"fmt"
	"io/fs"
	"sync"

	"github.com/moby/moby/client"
)

// checkedImages are the IDs of images whose lists of users were checked.
var checkedImages sync.Map

// accounts checks, once for each image, that its lists of users are regular files. An engine reads
// them at every start. If one is a pipe, it waits forever, and meanwhile lists no containers for
// anybody, so that no image could be built on this machine any more.
func (m *machine) accounts(ctx context.Context, cli *client.Client, image string) error {
	if _, ok := checkedImages.Load(image); ok || image == "" {
		return nil
	}
	for _, name := range []string{"/etc/passwd", "/etc/group"} {
		r, err := cli.ContainerStatPath(ctx, m.name, client.ContainerStatPathOptions{Path: name})
		if err == nil && r.Stat.Mode&fs.ModeSymlink != 0 && r.Stat.LinkTarget != "" {
			r, err = cli.ContainerStatPath(ctx, m.name, client.ContainerStatPathOptions{Path: r.Stat.LinkTarget})
		}
		st := r.Stat
		switch {
		case missing(err): // an image may have none
		case err != nil:
			return m.engineError(ctx, "looking at the image's "+name, err)
		case !st.Mode.IsRegular() && !st.Mode.IsDir():
			return m.b.d.no("an image whose %s is no file", name)
		case st.Size > maxAccounts:
			return m.b.d.no("an image whose %s has %s", name, fmt.Sprintf("%d MB", st.Size>>20))
		}
	}
	checkedImages.Store(image, true)
	return nil
}

// maxAccounts limits lists of users, which the engine reads as a whole.
const maxAccounts = 16 << 20
