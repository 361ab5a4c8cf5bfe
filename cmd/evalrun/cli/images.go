package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/evalrun/evalrun/cmd/evalrun/internal/progress"
	"github.com/evalrun/evalrun/harness/config"
	"github.com/evalrun/evalrun/harness/launch"
	"github.com/evalrun/evalrun/runtime/image"
)

func (a *app) imagesCommand() *cli.Command {
	return &cli.Command{
		Name:  "images",
		Usage: "list, remove and prepare the container images of tasks",
		Description: `evalrun keeps the images that it built or pulled for the next run and removes the least recently used ones when they
take too much disk space. It never touches other images.

Examples:
   evalrun images list
   evalrun images build harbor:tasks
   evalrun images prune --older-than 7d`,
		Commands: []*cli.Command{a.imagesList(), a.imagesPrune(), a.imagesBuild()},
	}
}

// imageStore opens the engine's image store. The error says what is missing.
func (a *app) imageStore(ctx context.Context, o image.Options) (*image.Store, func() error, error) {
	s, done, err := launch.ImageStore(ctx, o)
	if err != nil {
		return nil, nil, &exitError{ExitUsage, err, ""}
	}
	return s, done, nil
}

func (a *app) imagesList() *cli.Command {
	var asJSON bool
	return &cli.Command{
		Name:  "list",
		Usage: "list the images that evalrun built or pulled, the least recently used first",
		Description: `OWN is about the space that removing the image frees: its layers without those of its base image.

Examples:
   evalrun images list
   evalrun images list --json | jq -r 'select(.in_use | not) | .ref'`,
		Flags: []cli.Flag{&cli.BoolFlag{Name: "json", Usage: "print one JSON object per line", Destination: &asJSON}},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if err := none(cmd); err != nil {
				return err
			}
			s, done, err := a.imageStore(ctx, image.Options{})
			if err != nil {
				return err
			}
			defer done()
			list, err := s.List(ctx)
			if err != nil {
				return err
			}
			if asJSON {
				enc := json.NewEncoder(a.Stdout)
				for _, k := range list {
					if err := enc.Encode(k); err != nil {
						return err
					}
				}
				return nil
			}
			if len(list) == 0 {
				a.say("no images: evalrun has built and pulled none on this engine")
				return nil
			}
			var own int64
			w := tabwriter.NewWriter(a.Stdout, 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "IMAGE\tFOR\tKIND\tSIZE\tOWN\tLAST USED\tIN USE")
			for _, k := range list {
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", shortRef(k.Ref), dash(k.Name), k.Kind, bytesOf(k.Size),
					bytesOf(k.Own), ago(k.Used), yes(k.InUse))
				own += k.Own
			}
			if err := w.Flush(); err != nil {
				return err
			}
			budget, err := s.Budget(ctx)
			if err != nil {
				return err
			}
			limit := "no budget"
			if budget > 0 {
				limit = "a budget of " + bytesOf(budget)
			}
			a.say("%s in %s, %s", bytesOf(own), counted(len(list), "image"), limit)
			return nil
		},
	}
}

func (a *app) imagesPrune() *cli.Command {
	var p image.Pruning
	var older, budget string
	return &cli.Command{
		Name:  "prune",
		Usage: "remove images that evalrun built or pulled and that are not in use",
		Description: `Without flags, removes only what builds of dead runs left behind. The build cache belongs to the engine and other builds
use it too: --cache removes what was not used for --older-than, or for a day.

Examples:
   evalrun images prune --older-than 7d
   evalrun images prune --budget 20GiB
   evalrun images prune --all --cache`,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "all", Usage: "remove all images that are not in use", Destination: &p.All},
			&cli.StringFlag{Name: "older-than", Usage: "remove images not used for `DURATION`, such as 12h or 7d",
				Destination: &older},
			&cli.StringFlag{Name: "budget",
				Usage:       "remove the least recently used images until the rest takes at most `SIZE`",
				Destination: &budget},
			&cli.BoolFlag{Name: "cache", Usage: "also empty the build cache", Destination: &p.Cache},
			&cli.BoolFlag{Name: "dry-run", Usage: "only print what would be removed", Destination: &p.Dry},
		},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if err := none(cmd); err != nil {
				return err
			}
			var err error
			if p.Older, err = span(older); err != nil {
				return usage("", "--older-than %q is no duration, such as 12h or 7d", older)
			}
			if budget != "" {
				n, err := config.ParseSize(budget)
				if err != nil || n <= 0 {
					return usage("", "--budget %q is no size, such as 20GiB", budget)
				}
				p.Budget = int64(n)
			}
			s, done, err := a.imageStore(ctx, image.Options{})
			if err != nil {
				return err
			}
			defer done()
			out, err := s.Prune(ctx, p)
			a.printPruned(out, p.Dry)
			return err
		},
	}
}

func (a *app) printPruned(out image.Pruned, dry bool) {
	verb := "removed"
	if dry {
		verb = "would remove"
	}
	for _, k := range out.Removed {
		fmt.Fprintf(a.Stdout, "%s %s (%s, %s, used %s)\n", verb, shortRef(k.Ref), dash(k.Name), bytesOf(k.Own),
			ago(k.Used))
	}
	for _, k := range out.Left {
		if k.Reason != "" {
			a.say("left %s: %s", shortRef(k.Ref), k.Reason)
		}
	}
	if out.Scraps > 0 {
		fmt.Fprintf(a.Stdout, "%s %s\n", verb, counted(out.Scraps, "leftover")+" of builds")
	}
	if out.Cache > 0 {
		fmt.Fprintf(a.Stdout, "%s %s of the builder's cache\n", verb, bytesOf(out.Cache))
	}
	fmt.Fprintf(a.Stdout, "%s %s, about %s\n", verb, counted(len(out.Removed), "image"), bytesOf(out.Freed+out.Cache))
}

// span parses a duration, which may be given in days: 7d. "" means none.
func span(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16)
		return time.Duration(n) * 24 * time.Hour, err
	}
	d, err := time.ParseDuration(text)
	if err == nil && d <= 0 {
		err = errors.New("it is not positive")
	}
	return d, err
}

// shortRef shortens evalrun's own image names to an unambiguous prefix.
func shortRef(ref string) string {
	const own = "evalrun/image:"
	if len(ref) > len(own)+12 && ref[:len(own)] == own {
		ref = ref[:len(own)+12]
	}
	return progress.Clean(ref)
}

func bytesOf(n int64) string { return config.Size(n).Human() }

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "-"
}

func counted(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// ago formats a time in the past approximately.
func ago(t time.Time) string {
	switch d := time.Since(t); {
	case t.IsZero():
		return "-"
	case d < time.Minute:
		return "just now"
	case d < time.Hour:
		return fmt.Sprintf("%d min ago", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h ago", d/time.Hour)
	default:
		return fmt.Sprintf("%d days ago", d/(24*time.Hour))
	}
}
