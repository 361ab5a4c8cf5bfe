package cli

import (
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v3"

	"github.com/evalrun/evalrun/benchmarks/quickstart"
	"github.com/evalrun/evalrun/harness/config"
)

var (
	exampleShown = regexp.MustCompile(`tasks show quickstart (\S+)`)
	exampleTask  = regexp.MustCompile(`--task ([a-z-]+)( |$)`)
)

// Tasks that examples of the help name by their whole names are those of quickstart.
func TestExamplesNameTasks(t *testing.T) {
	b := quickstart.New()
	var ids []string
	for task, err := range b.Source().Tasks(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, task.ID)
	}
	n := 0
	var walk func(c *cli.Command)
	walk = func(c *cli.Command) {
		for line := range strings.Lines(c.Description) {
			for _, re := range []*regexp.Regexp{exampleShown, exampleTask} {
				line := strings.TrimSpace(strings.TrimPrefix(line, "Examples:"))
				if m := re.FindStringSubmatch(line); m != nil && strings.HasPrefix(line, "evalrun ") {
					n++
					if !slices.Contains(ids, m[1]) {
						t.Errorf("%s: the task %s of an example does not exist", c.FullName(), m[1])
					}
				}
			}
		}
		for _, sub := range c.Commands {
			walk(sub)
		}
	}
	a := &app{System: System{Stdout: io.Discard, Stderr: io.Discard}, reg: new(config.Registry)}
	walk(a.root())
	if n < 2 {
		t.Errorf("%d examples name tasks", n)
	}
}
