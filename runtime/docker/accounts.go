package docker

import (
	"context"
	"fmt"
	"io/fs"
	"sync"

	"github.com/docker/docker/client"
)

// sane are the images, by ID and so by content, whose lists of users were looked at.
var sane sync.Map

// accounts looks, once for each image, whether its lists of users are files. An engine reads them
// at every start, waits forever where one is a pipe, and meanwhile answers nobody who asks for its
// containers: no image could be built on this machine any more.
func (m *machine) accounts(ctx context.Context, cli *client.Client, image string) error {
	if _, ok := sane.Load(image); ok || image == "" {
		return nil
	}
	for _, name := range []string{"/etc/passwd", "/etc/group"} {
		st, err := cli.ContainerStatPath(ctx, m.name, name)
		if err == nil && st.Mode&fs.ModeSymlink != 0 && st.LinkTarget != "" {
			st, err = cli.ContainerStatPath(ctx, m.name, st.LinkTarget)
		}
		switch {
		case missing(err): // an image need not have any
		case err != nil:
			return m.engineError(ctx, "looking at the image's "+name, err)
		case !st.Mode.IsRegular() && !st.Mode.IsDir():
			return m.b.d.no("an image whose %s is no file", name)
		case st.Size > maxAccounts:
			return m.b.d.no("an image whose %s has %s", name, fmt.Sprintf("%d MB", st.Size>>20))
		}
	}
	sane.Store(image, true)
	return nil
}

// maxAccounts bounds lists of users: the engine reads them whole.
const maxAccounts = 16 << 20
