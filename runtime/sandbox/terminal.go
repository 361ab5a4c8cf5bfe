package sandbox

import (
	"context"
	"io"
)

// A Terminaler runs commands on terminals that people use.
type Terminaler interface {
	// Terminal runs a command on a terminal of its own until it ends, and then kills what it has
	// started, also in the background. A nonzero exit code and death by a signal are results. If
	// there are no terminals inside, the error is an [Unsupported] with the reason. When ctx ends,
	// the command is killed likewise, and the error wraps ctx's cause.
	Terminal(ctx context.Context, t Terminal) (Exit, error)
}

// A Terminal is a command with a terminal. What is typed reaches the command as the terminal's
// modes say: as signals, lines or single keys.
type Terminal struct {
	Args []string // run without a shell, as in a Command
	Dir  string   // "": the spec's
	User string   // "": the spec's
	Env  map[string]string

	Size   TerminalSize
	Resize <-chan TerminalSize // sizes from then on; nil: it stays
	Stdin  io.Reader           // what is typed; nil: nothing
	// Stdout receives what is written to the terminal, as it is: control sequences for a terminal,
	// which are hostile. A writer that waits holds up the command only. If it fails, the rest is
	// dropped.
	Stdout io.Writer
}

// A TerminalSize is the size of a terminal in characters.
type TerminalSize struct{ Rows, Cols uint16 }
