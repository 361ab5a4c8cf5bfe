package docker

import (
	"context"
	"fmt"
	"os"
	"path"
	"strings"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/evalrun/evalrun/runtime/executor"
)

// hung kills a container whose executor does not respond. It returns what the engine says of it,
// the states of the executor's threads if it runs on this machine, and the stacks that it prints on
// SIGQUIT.
func (m *machine) hung(ctx context.Context) string {
	cli, err := m.b.d.engine.api(ctx)
	if err != nil {
		return "asking the engine: " + message(err) + "\n"
	}
	defer func() { // Close does it too, but an agent's processes have to end now
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
			defer cancel()
			cli.ContainerKill(ctx, m.name, client.ContainerKillOptions{Signal: "KILL"})
		}()
	}()
	var s strings.Builder
	c, err := inspect(ctx, cli, m.name)
	if err != nil {
		return "asking the engine: " + message(err) + "\n"
	}
	fmt.Fprintf(&s, "container: status %s, paused %v, out of memory %v\n", c.State.Status, c.State.Paused,
		c.State.OOMKilled)
	if here(c.State.Pid) {
		s.WriteString(executor.Threads(c.State.Pid))
	}
	from := m.ch.errs.written()
	for _, sig := range []string{"QUIT", "CONT"} {
		if _, err := cli.ContainerKill(ctx, m.name, client.ContainerKillOptions{Signal: sig}); err != nil {
			fmt.Fprintf(&s, "sending it SIG%s: %s\n", sig, message(err))
		}
	}
	wait := cli.ContainerWait(ctx, m.name, client.ContainerWaitOptions{Condition: container.WaitConditionNotRunning})
	select {
	case <-wait.Result:
	case <-wait.Error:
		s.WriteString("it did not end on SIGQUIT\n")
	}
	for n, tries := int64(-1), 0; n != m.ch.errs.written() && tries < 10; tries++ {
		n = m.ch.errs.written()
		time.Sleep(20 * time.Millisecond)
	}
	s.WriteString(m.ch.errs.since(from))
	return s.String()
}

// here reports whether pid, from the engine, is a process of this machine: the executor.
func here(pid int) bool {
	args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	name, _, _ := strings.Cut(string(args), "\x00")
	return err == nil && pid > 0 && path.Base(name) == path.Base(toolPath)
}
