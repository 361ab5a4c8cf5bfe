package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/evalrun/evalrun/runtime/docker"
	"github.com/evalrun/evalrun/runtime/pool"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// ahead measures trials whose containers were started while others were played.
func (b *bench) ahead() error {
	e := newEngine()
	if err := e.call("GET", "/images/"+dockerImage+"/json", nil, nil); err != nil {
		return fmt.Errorf("the image %s is not there (scripts/setup-test makes it): %w", dockerImage, err)
	}
	if err := b.acquire(); err != nil {
		return err
	}
	task, script := filepath.Join(b.work, "ahead"), filepath.Join(b.work, "waits.yaml")
	if err := harborTask(task, taskTOML); err != nil {
		return err
	}
	play := func(agent string, workers, trials int) (float64, error) {
		u, err := b.play("run", "harbor:"+task, "--agent", agent, "--sandbox", "docker", "-n", strconv.Itoa(workers),
			"--repeats", strconv.Itoa(trials), "-o", b.out(fmt.Sprintf("ahead-%d", time.Now().UnixNano())),
			"--progress", "none")
		return u.wall, err
	}
	const trials = 12
	floor, err := b.atATime(1, trials, func() error { return e.trial(dockerImage) })
	if err != nil {
		return err
	}
	// The agent waits for so long that a container can be started meanwhile.
	wait := max(1, math.Ceil(2*floor))
	waits := fmt.Sprintf("[{do: [{sleep: %gs}, {run: %q}, {finish: done}]}]", wait, solve)
	if err := os.WriteFile(script, []byte(waits), 0o644); err != nil {
		return err
	}
	one, err := play("script:"+script, 1, 1)
	if err != nil {
		return err
	}
	all, err := play("script:"+script, 1, 1+trials) // the first is not started ahead
	if err != nil {
		return err
	}
	b.add("container trial, started ahead, without the agent's waiting", (all-one)/trials-wait, 0.5*floor,
		floor, ms, "bare API")

	const many, workers = 100, 4
	if floor, err = b.atATime(workers, many, func() error { return e.trial(dockerImage) }); err != nil {
		return err
	}
	took, err := play("oracle", workers, many)
	if err != nil {
		return err
	}
	b.addLeast(fmt.Sprintf("%d container trials of one task, %d at once, per second", many, workers), many/took,
		0.9/floor, 1/floor, perSecond, "bare API")
	return nil
}

// acquire measures how long it takes to get a container that was started ahead.
func (b *bench) acquire() error {
	ctx := context.Background()
	d := docker.New(docker.Options{})
	defer d.Close()
	p := pool.New(pool.Options{Ahead: 1}, d)
	defer p.Close()
	var all []float64
	for i := range 15 {
		spec := sandbox.Spec{Image: sandbox.Image{Ref: dockerImage}, Memory: 512 << 20,
			Owner: sandbox.Owner{Run: "bench", Trial: strconv.Itoa(i)}}
		p.Expect(ctx, []sandbox.Spec{spec})
		for deadline := time.Now().Add(time.Minute); p.Stats().Started <= i; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				return fmt.Errorf("no container was started ahead: %+v", p.Stats())
			}
		}
		t := time.Now()
		l, err := p.Acquire(ctx, []sandbox.Spec{spec})
		if err != nil {
			return err
		}
		if _, err := l.Sandbox(ctx, spec); err != nil {
			return err
		}
		all = append(all, time.Since(t).Seconds())
		l.Close()
	}
	if s := p.Stats(); s.Ahead != len(all) {
		return fmt.Errorf("%d of %d containers were started ahead", s.Ahead, len(all))
	}
	b.add("acquiring a container that was started ahead", mid(all), 2e-3, b.floors.exec, ms, "exec")
	return nil
}
