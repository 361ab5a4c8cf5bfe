package docker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/moby/moby/client"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

// copies is the repository of images of running sandboxes, and labelCopy the label that they all have.
const (
	copies    = "evalrun/copy"
	labelCopy = "evalrun.copy"
)

// Copy makes an image of a running sandbox, which is not paused for it, and a sandbox from that. The
// image is removed with the sandbox. It has the owner's labels, so that Reap finds it after a crash.
func (d *Driver) Copy(ctx context.Context, id string, spec sandbox.Spec) (sandbox.Sandbox, error) {
	fail := func(err error) (sandbox.Sandbox, error) {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, &sandbox.Error{Op: "copy", ID: id, Err: err}
	}
	if !strings.HasPrefix(id, prefix) || strings.ContainsAny(id, "/\x00") {
		return fail(fmt.Errorf("%w: no sandbox of this driver has such a name", sandbox.ErrGone))
	}
	cli, err := d.engine.api(ctx)
	if err != nil {
		return fail(err)
	}
	if err := d.running(ctx, cli, id); err != nil {
		return fail(err)
	}
	c, err := inspect(ctx, cli, id)
	if err != nil {
		return fail(d.engine.explain(err))
	}
	from, err := d.engine.Inspect(ctx, c.Image)
	if err != nil {
		return fail(err)
	}
	owner := spec.Owner.OrSelf()
	copied := labels("", owner)
	copied[labelCopy] = "1"
	var changes []string
	for _, k := range slices.Sorted(maps.Keys(copied)) {
		changes = append(changes, "LABEL "+k+"="+strconv.Quote(copied[k]))
	}
	ref := copies + ":" + random(8)
	made.Store(ref, true)
	remove := func() error {
		ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), closeLimit, errNoAnswer)
		defer cancel()
		err := d.removeCopy(ctx, cli, ref)
		if err == nil {
			made.Delete(ref)
		}
		return err
	}
	if _, err := cli.ContainerCommit(ctx, id, client.ContainerCommitOptions{Reference: ref, NoPause: true,
		Changes: changes}); err != nil {
		return fail(errors.Join(d.engine.explain(err), remove()))
	}
	// The container's settings, which its image has, are those of our executor.
	config := from.Config
	config.Entrypoint, config.Cmd = nil, nil
	b, err := d.create(ctx, sandbox.Spec{Owner: owner, Image: sandbox.Image{Ref: ref}, User: spec.User, Dir: spec.Dir,
		Env: spec.Env}, &config)
	if err != nil {
		return fail(errors.Join(err, remove()))
	}
	return &duplicate{box: b, remove: sync.OnceValue(remove)}, nil
}

// A duplicate is a copy. Its image ends with it.
type duplicate struct {
	*box
	remove func() error
}

func (d *duplicate) Close() error { return errors.Join(d.box.Close(), d.remove()) }

// made are the images of copies of this process.
var made sync.Map // reference → true

func (d *Driver) removeCopy(ctx context.Context, cli *client.Client, ref string) error {
	_, err := cli.ImageRemove(ctx, ref, client.ImageRemoveOptions{Force: true, PruneChildren: true})
	if err != nil && !missing(err) {
		return d.engine.explain(err)
	}
	return nil
}

// reapCopies removes images of copies whose owner is dead, and those of this process that Close could
// not remove.
func (d *Driver) reapCopies(ctx context.Context, cli *client.Client, dead func(sandbox.Owner) bool) error {
	list, err := cli.ImageList(ctx, client.ImageListOptions{Filters: byLabel(labelCopy)})
	if err != nil {
		return d.engine.explain(err)
	}
	var errs []error
	for _, img := range list.Items {
		for _, ref := range img.RepoTags {
			_, ours := made.Load(ref)
			if !strings.HasPrefix(ref, copies+":") || ours || // its sandbox is in use
				!dead(ownerOf(img.Labels)) && img.Labels[labelProcess] != process() {
				continue
			}
			errs = append(errs, d.removeCopy(ctx, cli, ref))
		}
	}
	return errors.Join(errs...)
}
