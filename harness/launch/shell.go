package launch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/user"
	"strconv"

	"github.com/evalrun/evalrun/harness"
	"github.com/evalrun/evalrun/harness/attach"
	"github.com/evalrun/evalrun/harness/config"
	"github.com/evalrun/evalrun/harness/plan"
	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/harness/rundir"
	"github.com/evalrun/evalrun/runtime/image"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// receive lets people enter the sandboxes of the run's trials, by the socket in its folder, until
// closed is called.
func (r *Ready) receive(d *rundir.Dir, cfg *harness.Config) (closed func()) {
	if r.Driver == nil {
		return func() {}
	}
	live := new(harness.Live)
	s, err := attach.Listen(d.Path(), func(ctx context.Context, c *attach.Conn) attach.Reply {
		return visited(ctx, live, c)
	})
	if err != nil {
		r.o.Log.Warn("evalrun shell cannot enter the sandboxes of this run's trials", "err", err)
		return func() {}
	}
	cfg.Live = live
	return func() {
		if err := s.Close(); err != nil {
			r.o.Log.Warn("closing the socket of evalrun shell", "err", err)
		}
	}
}

// visited serves one request.
func visited(ctx context.Context, live *harness.Live, c *attach.Conn) attach.Reply {
	switch c.Op {
	case "list":
		raw, err := json.Marshal(live.Trials())
		if err != nil {
			return attach.Reply{Error: err.Error(), Refused: true}
		}
		return attach.Reply{Data: raw}
	case "enter":
	default:
		return attach.Reply{Error: "unknown request", Refused: true}
	}
	v := harness.Visit{By: userName(c.UID), Service: c.Service, User: c.User, Args: c.Args, Terminal: c.Terminal,
		Term: c.Term, Size: c.Size, Resize: c.Resize(), Stdin: c.Stdin(), Stdout: c.Stdout(), Stderr: c.Stderr()}
	begun := false
	x, err := live.Enter(ctx, c.Trial, v, func() {
		begun = true
		c.Begun()
	})
	if err != nil {
		return attach.Reply{Error: err.Error(), Refused: !begun, Code: -1}
	}
	return attach.Reply{Code: x.Code, Signal: x.Signal}
}

// userName returns the name of a user of this machine.
func userName(uid int) string {
	if u, err := user.LookupId(strconv.Itoa(uid)); err == nil && u.Username != "" {
		return u.Username
	}
	return "user " + strconv.Itoa(uid)
}

// LiveTrials returns the trials of the run in d that another process is playing now; nobody plays it
// if it is attach.ErrNoSocket.
func LiveTrials(d *rundir.Dir) ([]harness.LiveTrial, error) {
	c, err := dial(d)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	reply, err := c.Do(attach.Request{Op: "list"}, nil, nil, nil)
	if err == nil && reply.Error != "" {
		err = errors.New(reply.Error)
	}
	if err != nil {
		return nil, fmt.Errorf("the evalrun that plays this run: %w", err)
	}
	var out []harness.LiveTrial
	return out, json.Unmarshal(reply.Data, &out)
}

func dial(d *rundir.Dir) (*attach.Client, error) {
	who, busy := rundir.Holder(d.Path())
	if !busy {
		return nil, attach.ErrNoSocket
	}
	c, err := attach.Dial(d.Path(), who.PID)
	if errors.Is(err, attach.ErrNoSocket) {
		host, _ := os.Hostname()
		if who.Host != host {
			return nil, fmt.Errorf("process %d on %s plays this run: enter its sandboxes there", who.PID, who.Host)
		}
		return nil, fmt.Errorf("process %d plays this run, but there is no socket in %s: either none of its tasks has "+
			"a sandbox, or the folder's file system has no sockets (it has said so at its start)", who.PID, d.Path())
	}
	return c, err
}

// Enter connects to the process that plays the run in d.
func Enter(d *rundir.Dir) (*attach.Client, error) { return dial(d) }

// Fresh makes a sandbox for a trial's task, as the trial gets one, and runs a command in it. It
// belongs to no run, nothing is recorded, and it is removed at the end. began is called before the
// command runs.
func Fresh(ctx context.Context, d *rundir.Dir, trial string, v harness.Visit, o Options,
	began func(task string)) (x sandbox.Exit, err error) {
	o.Dry = true // no model is called, so secrets may be missing
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	p := d.Plan()
	eff, err := config.Parse(config.Source{Name: "plan.json", Data: p.Config, Dir: "/"}, o.Kinds.Config())
	if err != nil {
		return x, err
	}
	r := &Ready{Eff: eff, Plan: p, o: o, variant: map[[2]int]int{}}
	defer func() {
		if cerr := r.Close(); err == nil {
			err = cerr
		}
	}()
	r.integrity(p)
	if err := errors.Join(r.openEnv(), r.openModels()); err != nil {
		return x, err
	}
	r.browsers = openBrowsers(eff.Browser)
	if err := r.openBenchmarks(); err != nil {
		return x, err
	}
	if err := r.openArms(); err != nil {
		return x, err
	}
	job, err := r.jobOf(trial)
	if err != nil {
		return x, err
	}
	bench := r.benches[job.Benchmark]
	task, err := bench.Source().Task(ctx, job.Task.ID)
	if err != nil {
		return x, err
	}
	needs, err := bench.Needs(task, bench.Options)
	if err != nil {
		return x, err
	}
	if needs.Skip != "" {
		return x, fmt.Errorf("the task cannot run here: %s", needs.Skip)
	}
	needs.Grader, needs.GradeLive = nil, false
	r.Needs.Drivers, r.Needs.Networks, r.Needs.Sizes = map[string][]string{}, map[string]int{}, map[string]int{}
	r.wants(task.ID, needs)
	if !r.Needs.Machines {
		return x, errors.New("the task has no sandbox")
	}
	if err := r.openDriver(ctx); err != nil {
		return x, err
	}
	cfg, err := r.baseConfig()
	if err != nil {
		return x, err
	}
	cfg.Owner.Run = ""
	err = harness.Fresh(ctx, cfg, job, func(ctx context.Context, sb sandbox.Sandbox) (err error) {
		began(job.Task.Benchmark + "/" + job.Task.ID)
		x, err = v.Run(ctx, sb)
		return err
	})
	return x, err
}

// jobOf returns the job of a trial of the plan.
func (r *Ready) jobOf(trial string) (harness.Job, error) {
	for j := range r.variants(plan.Jobs(r.Plan, nil, nil)) {
		if j.Trial == trial {
			j.Attempt = 1
			return j, nil
		}
	}
	return harness.Job{}, fmt.Errorf("the plan has no trial %s", trial)
}

// Look copies the agent's sandbox of a running trial and runs a command in the copy. The trial does
// not notice, and nothing is recorded. began is called before the command runs.
func Look(ctx context.Context, t harness.LiveTrial, v harness.Visit, o Options, began func()) (x sandbox.Exit, err error) {
	k := o.Kinds.Sandbox(t.Driver)
	if k == nil {
		return x, fmt.Errorf("no driver is called %q in this program", t.Driver)
	}
	drv, err := OpenDriver(ctx, k, image.Options{})
	if err != nil {
		return x, err
	}
	if c, ok := drv.(interface{ Close() error }); ok {
		defer c.Close()
	}
	c, ok := drv.(sandbox.Copier)
	if !ok {
		return x, fmt.Errorf("driver %s cannot copy a sandbox that is running; without --look the shell is in the "+
			"sandbox itself, and the trial gets the flag %s", t.Driver, record.Touched)
	}
	owner := self()
	owner.Role = "look"
	sb, err := c.Copy(ctx, t.Machine, sandbox.Spec{Owner: owner, User: t.User, Dir: t.Dir})
	if err != nil {
		return x, err
	}
	defer func() {
		if cerr := sb.Close(); err == nil {
			err = cerr
		}
	}()
	began()
	return v.Run(ctx, sb)
}
