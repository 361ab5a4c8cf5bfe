package executor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/evalrun/evalrun/internal/fileop"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// fileTimeout limits a file operation, which may wait for a file system of the machine's.
const fileTimeout = time.Minute

// FileOp implements [sandbox.Filer]. The operation is a command like any other: a process of the
// executor's program, as the user and within the limits of commands. Changes wait for each other:
// their processes know nothing of others, and of one that reads a file while another one writes it,
// or of two that replace it, a change would be lost.
func (c *Client) FileOp(ctx context.Context, op sandbox.FileOp) (res sandbox.FileResult, err error) {
	req, err := json.Marshal(op)
	if err == nil && len(req) > fileop.MaxRequest {
		err = fmt.Errorf("the operation has %d bytes, more than %d", len(req), fileop.MaxRequest)
	}
	if err != nil {
		return res, &sandbox.Error{Op: "files", ID: c.id, Err: err, BadRequest: true}
	}
	if op.Changes() {
		select {
		case c.edits <- struct{}{}:
			defer func() { <-c.edits }()
		case <-ctx.Done():
			return res, c.wrap(ctx, "files", ctx.Err())
		}
	}
	out, why := &bounded{max: fileop.MaxResult}, &bounded{max: 4 << 10}
	exit, err := c.exec(ctx, sandbox.Command{Stdin: bytes.NewReader(req), Stdout: out, Stderr: why, User: op.User,
		Timeout: fileTimeout}, execKind{files: true})
	if err != nil {
		return res, err
	}
	inside := func(err error) (sandbox.FileResult, error) {
		return sandbox.FileResult{}, &sandbox.Error{Op: "files", ID: c.id, Err: err, Inside: true}
	}
	switch {
	case exit.TimedOut:
		return inside(fmt.Errorf("a file operation took more than %v", fileTimeout))
	case exit.Code != 0:
		return inside(fmt.Errorf("a file operation ended with status %d %s %q", exit.Code, exit.Signal, why.Bytes()))
	case out.over:
		return inside(errors.New("the result of a file operation is too large"))
	}
	if res, err = fileop.Decode(out.Bytes()); err != nil {
		return inside(fmt.Errorf("the result of a file operation: %w", err))
	}
	return res, nil
}

// bounded keeps the first bytes that are written to it.
type bounded struct {
	bytes.Buffer
	max  int
	over bool
}

func (b *bounded) Write(p []byte) (int, error) {
	if n := b.max - b.Len(); len(p) > n {
		b.over = true
		b.Buffer.Write(p[:max(n, 0)])
		return len(p), nil
	}
	return b.Buffer.Write(p)
}
