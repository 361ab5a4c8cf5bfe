package cli

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/evalrun/evalrun/harness/journal"
	"github.com/evalrun/evalrun/harness/launch"
	"github.com/evalrun/evalrun/harness/rundir"
	"github.com/evalrun/evalrun/internal/suggest"
	"github.com/evalrun/evalrun/reports/text"
)

type showOptions struct {
	trial, flag, html          string
	status, arms, tasks        []string
	trials, json, full, markup bool
	verify                     bool
}

// lists reports whether the options ask for a list of trials.
func (o *showOptions) lists() bool {
	return o.trials || o.flag != "" || len(o.status)+len(o.arms)+len(o.tasks) > 0
}

func (a *app) showCommand() *cli.Command {
	var o showOptions
	return &cli.Command{
		Name:      "show",
		Usage:     "print a run's summary, a list of its trials, or everything about one trial",
		ArgsUsage: "RUN",
		Description: `Also works while the run is in progress. --trial takes a trial id, the beginning of one, or a task that has only one
trial. --status, --arm, --task and --flag list the trials that match all of them; in names, * matches anything.
confirmed, unconfirmed, not_known and not_applicable are states of second opinions. Trials that are pending are not
decided yet, or wait for a second opinion.

Examples:
   evalrun show runs/2026-11-21T093000Z-nightly
   evalrun show out --trials
   evalrun show out --status failed --arm 'codeact*' --json | jq -r .trial
   evalrun show out --trial 3f2a --full
   evalrun show out --trial 3f2a --html trial.html     as a page, with screenshots
   evalrun show out --verify                           check the whole run for damage
   evalrun show out --json | jq '.arms[] | {arm, mean}'`,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "trials", Usage: "list all trials, one per line", Destination: &o.trials},
			&cli.StringSliceFlag{Name: "status",
				Usage:       "list trials with `STATUS`: " + strings.Join(text.TrialStatuses, ", "),
				Destination: &o.status},
			&cli.StringSliceFlag{Name: "arm", Usage: "list trials of `ARM`; repeatable", Destination: &o.arms},
			&cli.StringSliceFlag{Name: "task", Usage: "list trials of `TASK`; repeatable", Destination: &o.tasks},
			&cli.StringFlag{Name: "flag", Usage: "list trials with flag `NAME`, such as no_reward",
				Destination: &o.flag},
			&cli.StringFlag{Name: "trial", Usage: "print everything about trial `ID`", Destination: &o.trial},
			&cli.StringFlag{Name: "html",
				Usage:       "write the --trial page, with its pictures, to `FILE`; - is standard output",
				Destination: &o.html},
			&cli.BoolFlag{Name: "full", Usage: "do not shorten long texts", Destination: &o.full},
			&cli.BoolFlag{Name: "json", Usage: "print JSON: the summary as one object, a list as one object per " +
				"line, a trial as " +
				"one journal entry per line", Destination: &o.json},
			&cli.BoolFlag{Name: "verify",
				Usage:       "check the journal and all stored content for damage; print nothing else",
				Destination: &o.verify},
			&cli.BoolFlag{Name: "markdown", Usage: "print the summary as Markdown", Destination: &o.markup},
		},
		Action: func(_ context.Context, cmd *cli.Command) error {
			path, err := one(cmd, "run folder")
			if err != nil {
				return err
			}
			switch {
			case o.trial != "" && o.lists():
				return usage("--trial tells one trial's story; leave it out to list trials",
					"--trial does not go with --trials, --status, --arm, --task and --flag")
			case o.verify && (o.trial != "" || o.lists() || o.json || o.markup || o.html != "" || o.full):
				return usage("it reads the whole run and shows nothing", "--verify goes with no other flag")
			case o.html != "" && o.trial == "":
				return usage("find one by: evalrun show "+path+" --trials", "--html shows one trial; add --trial ID")
			}
			return a.show(path, &o)
		},
	}
}

func (a *app) show(path string, o *showOptions) error {
	d, err := rundir.View(path)
	if err != nil {
		return folderError(err)
	}
	var f findings
	if err := f.whole(d); err != nil {
		return err
	}
	a.derived(d, path)
	if o.verify {
		f.again = "ID"
		err = a.verify(d, &f)
	} else {
		err = a.showRun(d, path, o, &f)
	}
	return f.after(err, path)
}

// verify checks all files of a run. It refuses a run with an active process, because its files are
// not consistent with each other.
func (a *app) verify(d *rundir.Dir, f *findings) error {
	if who, busy := rundir.Holder(d.Path()); busy {
		return usage("wait for its end", "process %d works in the run, so its files cannot be verified", who.PID)
	}
	for err := range launch.Verify(d) {
		if !f.add(err) {
			return err
		}
	}
	if f.err == nil {
		a.say("the journal and all content that it names are whole")
	}
	return nil
}

// showRun prints what is readable, and adds damage that it finds to f.
func (a *app) showRun(d *rundir.Dir, path string, o *showOptions, f *findings) error {
	style := a.style()
	style.Full = o.full
	if o.trial != "" {
		id, err := text.Find(d.Plan(), o.trial)
		if err != nil {
			return &exitError{ExitUsage, err, ""}
		}
		f.again = id
		switch {
		case o.html != "":
			return a.storyPage(d, id, o.html, f)
		case o.json:
			return text.StoryJSON(a.Stdout, id, f.of(journal.Trial(d.Journal(), id)))
		}
		open, err := f.blobs(d)
		if err != nil {
			return err
		}
		return text.Story(a.Stdout, style, d.Plan(), id, f.of(launch.Trial(d, id)), open)
	}
	res, err := launch.Results(d)
	if res == nil {
		return err
	}
	if err != nil && !f.add(err) {
		a.say("warning: %v", err)
	}
	if o.lists() {
		return a.showTrials(res, path, o)
	}
	sum, err := launch.Summary(res, path)
	if err != nil {
		return err
	}
	switch {
	case o.json:
		return sum.JSON(a.Stdout)
	case o.markup:
		return sum.Markdown(a.Stdout)
	}
	who, busy := rundir.Holder(path)
	if busy {
		a.say("process %d works in it: this is a picture of the moment", who.PID)
	}
	err = sum.Text(a.Stdout, style)
	if n := sum.Planned - sum.Decided; n > 0 && !busy && f.err == nil {
		if run, e := d.Run(); e == nil && len(run.Changed) > 0 {
			a.say("nobody works in it, and %s not decided. The content of tasks has changed: %s. Put it back, then: "+
				"evalrun resume %s; without these tasks: evalrun resume %s --leave-changed",
				trialsAre(n), someOf(run.Changed), path, path)
			return err
		}
		a.say("nobody works in it, and %s not decided. Go on with: evalrun resume %s", trialsAre(n), path)
	}
	return err
}

// someOf lists the first names and the number of the rest.
func someOf(names []string) string {
	const most = 3
	if n := len(names) - most; n > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), n)
	}
	return strings.Join(names, ", ")
}

func trialsAre(n int) string {
	if n == 1 {
		return "1 trial is"
	}
	return fmt.Sprintf("%d trials are", n)
}

// showTrials lists the selected trials.
func (a *app) showTrials(res *text.Results, path string, o *showOptions) error {
	o.status = split(o.status)
	for _, s := range o.status {
		if !slices.Contains(text.TrialStatuses, s) {
			hint := "statuses: " + strings.Join(text.TrialStatuses, ", ")
			if meant := suggest.Names(s, text.TrialStatuses); meant != nil {
				hint = fmt.Sprintf("did you mean %q?", meant[0])
			}
			return usage(hint, "unknown status %q", s)
		}
	}
	f := text.TrialFilter{Status: o.status, Arms: o.arms, Tasks: o.tasks, Flag: o.flag}
	rows := res.Trials(f)
	if err := nobody(res, path, rows, f); err != nil {
		return err
	}
	if o.json {
		return text.TrialsJSON(a.Stdout, rows)
	}
	if len(rows) == 0 { // not an error; a program gets an empty list
		a.say("none of %d trials is so", len(res.Trials(text.TrialFilter{})))
		return nil
	}
	style := a.style()
	style.Full = o.full
	if err := text.TrialsText(a.Stdout, style, rows); err != nil {
		return err
	}
	a.say("look at one with: evalrun show %s --trial %s", path, rows[0].ID)
	return nil
}

// storyPage writes one trial as an HTML page.
func (a *app) storyPage(d *rundir.Dir, id, file string, found *findings) (err error) {
	w := a.Stdout
	if file != "-" {
		f, err := os.Create(file)
		if err != nil {
			return &exitError{ExitUsage, fmt.Errorf("--html: %w", err), ""}
		}
		defer closing(f, &err)
		w = f
	}
	open, err := found.blobs(d)
	if err != nil {
		return err
	}
	if err := text.StoryPage(w, d.Plan(), id, found.of(launch.Trial(d, id)), open); err != nil {
		return err
	}
	if file != "-" {
		a.say("written: %s", file)
	}
	return nil
}
