package docker

import (
	"maps"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/evalrun/evalrun/runtime/image"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// An image may carry labels of ours. Its sandboxes are still whose they are, and who starts a
// container from it by hand loses nothing to us.
func TestLabelsOfImage(t *testing.T) {
	d := require(t)
	cli := api(t, d)
	all := []string{labelSandbox, labelService, labelProcess, labelRun, labelTrial, labelAttempt, labelRole, labelHost,
		labelBoot, labelPID, labelStart}
	all = append(all, image.Labels...)
	hostile := "evalrun-0123456789abcdef"
	changes := []string{"LABEL"}
	for _, l := range all {
		changes[0] += " " + l + "=7"
	}
	changes[0] = strings.Replace(changes[0], labelSandbox+"=7", labelSandbox+"="+hostile, 1)
	spec := helped(t, d, changes...)
	spec.Owner.Run, spec.Owner.Start = "labels-"+process(), 0
	spec.Volumes = []sandbox.Volume{{Name: "v", Path: "/v"}}
	side := sandbox.Spec{Image: spec.Image, Entrypoint: []string{helperPath, "sleep", "1000h"}}
	spec.Services = map[string]sandbox.Spec{"side": side}
	sb, err := d.Create(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	defer sb.Close()
	b := sb.(*box)
	for _, m := range b.machines() {
		c, err := inspect(t.Context(), cli, m.name)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range all {
			if v, ok := c.Config.Labels[l]; !ok || v == "7" || v == hostile {
				t.Errorf("%s: label %s is %q", m.name, l, v)
			}
		}
		if o := ownerOf(c.Config.Labels); o != spec.Owner {
			t.Errorf("%s belongs to %+v", m.name, o)
		}
	}
	want := labels(b.id, spec.Owner)
	for _, v := range b.volumes {
		if x, err := cli.VolumeInspect(t.Context(), v, client.VolumeInspectOptions{}); err != nil ||
			!maps.Equal(x.Volume.Labels, want) {
			t.Errorf("volume %s: %+v, %v", v, x.Volume.Labels, err)
		}
	}
	// Somebody's own container of that image, as docker run would make it.
	own, err := cli.ContainerCreate(t.Context(),
		client.ContainerCreateOptions{Config: &container.Config{Image: spec.Image.Ref, Cmd: []string{"/x"}}})
	if err != nil {
		t.Fatal(err)
	}
	defer cli.ContainerRemove(t.Context(), own.ID, client.ContainerRemoveOptions{Force: true})
	n, err := d.Reap(t.Context(), func(o sandbox.Owner) bool { return o.Run != "7" })
	if err != nil || n != 0 {
		t.Errorf("reaped %d, %v", n, err)
	}
	if _, err := inspect(t.Context(), cli, own.ID); err != nil {
		t.Errorf("a container that is not ours: %v", err)
	}
}

// An image that somebody removes between its preparation and the start is made once more; one that
// cannot be is told of.
func TestImageRemovedBeforeStart(t *testing.T) {
	d := requireWith(t, Options{Images: image.Options{Dir: t.TempDir()}})
	cli := api(t, d)
	spec := sandbox.Spec{Owner: sandbox.Self(), Memory: 64 << 20, Image: sandbox.Image{
		Name: "gone", Dockerfile: "FROM " + emptyImage + "\nCOPY mark /mark\n",
		Context: fstest.MapFS{"mark": {Data: []byte(random(8))}},
	}}
	remove := func(ref string) {
		t.Helper()
		if _, err := cli.ImageRemove(t.Context(), ref, client.ImageRemoveOptions{Force: true}); err != nil {
			t.Fatal(err)
		}
	}
	digest, err := d.Prepare(t.Context(), spec.Image)
	if err != nil {
		t.Fatal(err)
	}
	remove(digest)
	sb, err := d.Create(t.Context(), spec)
	if err != nil {
		t.Fatalf("its image was removed: %v", err)
	}
	sb.Close()
	again, err := d.Prepare(t.Context(), spec.Image)
	if err != nil {
		t.Fatal(err)
	}
	remove(again)

	ref := importImage(t, cli, map[string][]byte{"mark": []byte(random(8))})
	spec.Image = sandbox.Image{Ref: ref}
	if _, err := d.Prepare(t.Context(), spec.Image); err != nil {
		t.Fatal(err)
	}
	remove(ref)
	if _, err = d.Create(t.Context(), spec); err == nil || !strings.Contains(err.Error(), "pulling the image "+ref) {
		t.Errorf("an image that no registry has: %v", err)
	}
	if left := mine(t, d); len(left) != 0 {
		t.Errorf("left %q", left)
	}
}
