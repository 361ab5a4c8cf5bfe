package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/evalrun/evalrun/cmd/evalrun/internal/progress"
	"github.com/evalrun/evalrun/harness/launch"
	"github.com/evalrun/evalrun/runtime/image"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// A builtImage is a row in the output of images build.
type builtImage struct {
	Image  string   `json:"image"` // the requested name
	Ref    string   `json:"ref,omitempty"`
	State  string   `json:"state"` // built, pulled, there, failed, skipped
	Size   int64    `json:"size,omitempty"`
	Took   float64  `json:"seconds"`
	Tasks  []string `json:"tasks"`
	Error  string   `json:"error,omitempty"`
	Output string   `json:"output,omitempty"`
}

func (a *app) imagesBuild() *cli.Command {
	var o configOptions
	var mode playOptions
	var asJSON bool
	return &cli.Command{
		Name:      "build",
		Usage:     "build and pull all images that a benchmark's tasks need",
		ArgsUsage: "BENCHMARK",
		Description: `Builds and pulls the missing images, several at once. A run does this too when it needs an image; doing it beforehand
saves the trials that time. If an image fails, the others are still built, the end of its output is printed, and the
exit code is 4.

Examples:
   evalrun images build harbor:tasks
   evalrun images build harbor:tasks --ids 'web-*' -n 4
   evalrun images build harbor:tasks --json | jq -r 'select(.state == "failed") | .image'`,
		Flags: append(o.selectFlags(),
			textFlag(&o.workers, "workers", "make `N` images at once", "n"),
			&cli.StringFlag{Name: "progress", Usage: "progress `MODE`: " + strings.Join(progress.Modes, ", "),
				Value: progress.Auto, Destination: &mode.progress},
			&cli.BoolFlag{Name: "json", Usage: "print one JSON object per line", Destination: &asJSON}),
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if _, err := one(cmd, "benchmark"); err != nil {
				return err
			}
			if err := a.checkPlay(&mode); err != nil {
				return err
			}
			o.agents, o.models = []string{"nop"}, nil
			eff, err := a.configure(cmd.Args().Slice(), &o)
			if err != nil {
				return err
			}
			needed, unasked, err := launch.ImageNeeds(ctx, eff, a.options())
			if err != nil {
				return &exitError{ExitUsage, err, ""}
			}
			for _, id := range slices.Sorted(maps.Keys(unasked)) {
				a.say("task %s is left out: %s", progress.Clean(id), progress.Clean(unasked[id]))
			}
			if len(needed) == 0 {
				a.say("the tasks need no images")
				return nil
			}
			b := &imageBuilder{a: a, all: len(needed)}
			opts := launch.ImageOptions(eff)
			opts.Progress = b.progress
			if eff.Workers > 0 {
				opts.Builds, opts.Pulls = eff.Workers, eff.Workers
			}
			s, done, err := a.imageStore(ctx, opts)
			if err != nil {
				return err
			}
			defer done()
			a.progress.shows(mode.progress, "images", len(needed), 0)
			rows := b.run(ctx, s, needed)
			a.progress.close()
			return a.printBuilt(rows, asJSON)
		},
	}
}

// An imageBuilder builds or pulls images and reports progress.
type imageBuilder struct {
	a   *app
	all int

	mu   sync.Mutex
	made map[string]string // built or pulled images by requested name
}

// atOnce limits how many images are processed concurrently; the store limits how many are built at
// the same time.
const atOnce = 32

func (b *imageBuilder) run(ctx context.Context, s *image.Store, needed []launch.NeededImage) []builtImage {
	rows := make([]builtImage, len(needed))
	turns := make(chan struct{}, atOnce)
	var wg sync.WaitGroup
	for i, n := range needed {
		turns <- struct{}{}
		wg.Go(func() {
			defer func() { <-turns }()
			rows[i] = b.one(ctx, s, n)
		})
	}
	wg.Wait()
	return rows
}

func (b *imageBuilder) one(ctx context.Context, s *image.Store, n launch.NeededImage) builtImage {
	began := time.Now()
	img := n.Image
	if img.Name == "" {
		img.Name = n.Title
	}
	b.a.progress.begun()
	info, err := s.Prepare(ctx, img)
	row := builtImage{Image: n.Title, Ref: info.Ref, State: "there", Size: info.Size, Took: time.Since(began).Seconds(),
		Tasks: n.Tasks}
	b.mu.Lock()
	if kind, ok := b.made[img.Name]; ok {
		row.State = kind
	}
	b.mu.Unlock()
	var failed *sandbox.Error
	var refused *sandbox.Unsupported
	switch {
	case errors.As(err, &refused):
		row.State, row.Error = "skipped", refused.What
	case errors.As(err, &failed):
		row.State, row.Error, row.Output = "failed", failed.Err.Error(), failed.Detail
	case err != nil:
		row.State, row.Error = "failed", err.Error()
	}
	done := b.a.progress.made(err == nil)
	if row.State != "there" {
		b.a.progress.announce("image", map[string]any{"image": row.Image, "state": row.State, "done": done,
			"all": b.all},
			fmt.Sprintf("%d/%d  %s %s in %s", done, b.all, row.State, progress.Clean(row.Image),
				time.Since(began).Round(100*time.Millisecond)))
	}
	return row
}

// progress receives the store's progress reports.
func (b *imageBuilder) progress(p image.Progress) {
	b.a.progress.making(p)
	if !p.Done || p.Err != nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.made == nil {
		b.made = map[string]string{}
	}
	b.made[p.Name] = map[string]string{"pull": "pulled", "build": "built"}[p.Doing]
}

// outputShown is the number of output lines printed for a failed build.
const outputShown = 20

func (a *app) printBuilt(rows []builtImage, asJSON bool) error {
	slices.SortStableFunc(rows, func(x, y builtImage) int { return cmp.Compare(x.Image, y.Image) })
	count := map[string]int{}
	enc := json.NewEncoder(a.Stdout)
	w := tabwriter.NewWriter(a.Stdout, 0, 0, 2, ' ', 0)
	if !asJSON {
		fmt.Fprintln(w, "IMAGE\tSTATE\tREF\tSIZE\tTIME\tTASKS")
	}
	for _, r := range rows {
		count[r.State]++
		if asJSON {
			if err := enc.Encode(r); err != nil {
				return err
			}
			continue
		}
		size := "-"
		if r.Ref != "" {
			size = bytesOf(r.Size)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%.1f s\t%d\n", progress.Clean(r.Image), r.State, dash(shortRef(r.Ref)), size,
			r.Took, len(r.Tasks))
	}
	w.Flush()
	bad := count["failed"] + count["skipped"]
	if !asJSON {
		for _, r := range rows {
			if r.Error == "" {
				continue
			}
			fmt.Fprintf(a.Stdout, "\n%s\n", progress.Clean(r.Error))
			lines := strings.Split(strings.TrimRight(r.Output, "\n"), "\n")
			for _, line := range lines[max(0, len(lines)-outputShown):] {
				if line != "" {
					fmt.Fprintf(a.Stdout, "   %s\n", progress.Clean(line))
				}
			}
		}
		if bad > 0 {
			fmt.Fprintln(a.Stdout)
		}
		fmt.Fprintf(a.Stdout, "%s: %d built, %d pulled, %d there, %d failed\n", counted(len(rows), "image"),
			count["built"], count["pulled"], count["there"], bad)
	}
	if bad > 0 {
		return &exitError{ExitGate, nil, ""}
	}
	return nil
}
