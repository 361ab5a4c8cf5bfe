package config_test

import (
	"fmt"

	"github.com/evalrun/evalrun/harness/config"
)

// names is what a configuration may name: a program gives its own (harness/registry makes it of
// the kinds that packages have).
var names = &config.Registry{
	Benchmarks: []config.Kind{{Name: "quickstart"}},
	Agents:     []config.Kind{{Name: "nop"}, {Name: "oracle"}},
	Drivers:    []config.Kind{{Name: "auto"}, {Name: "local"}},
}

// Parse completes a configuration: it fills in defaults and expands the matrix into arms, each with
// an ID.
func ExampleParse() {
	e, err := config.Parse(config.Source{Name: "run.yaml", Data: []byte(`
benchmark: quickstart
matrix:
  agent: [nop, oracle]
limits: {turns: 9}
`)}, names)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, a := range e.Arms {
		fmt.Println(a.Name, a.Limits.Turns, "turns")
	}
	fmt.Println("repeats:", e.Repeats)
	// Output:
	// nop 9 turns
	// oracle 9 turns
	// repeats: 1
}

// All errors are reported together, each with its position.
func ExampleErrors() {
	_, err := config.Parse(config.Source{Name: "run.yaml",
		Data: []byte("benchmark: quickstart\nagnet: nop\nrepeats: none\n")}, names)
	fmt.Println(err)
	// Output:
	// run.yaml:2:1: agnet: unknown key; did you mean "agent"?
	// run.yaml:3:10: repeats: expected a whole number, found "none"
}
