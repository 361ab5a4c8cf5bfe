package executor

import (
	"context"

	"github.com/evalrun/evalrun/internal/execproto"
)

// ShowReadOnly shows a folder of the sandbox at another path, which is made if it does not exist.
// There nobody can write to it. Where process 1 may not mount (in containers and without isolation),
// the error is a [sandbox.Unsupported].
func (c *Client) ShowReadOnly(ctx context.Context, from, to string) error {
	var e execproto.Enc
	e.String(from)
	e.String(to)
	if _, err := c.request(ctx, execproto.KindReadOnly, e); err != nil {
		return c.wrap(ctx, "show", err)
	}
	return nil
}
