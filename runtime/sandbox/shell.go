package sandbox

import (
	"context"
	"io"
	"time"
)

// A Sheller has persistent shells: interactive bash sessions on terminals of their own, which keep
// their directory, variables, functions and jobs from one call to the next. A sandbox may have
// several, by name.
type Sheller interface {
	// Shell makes one call. The first call of a name starts its session, and so does the first one
	// after the session has ended. Calls of one session wait for each other. If there is no bash
	// inside, or no terminal, the error is an [Unsupported] with the reason.
	//
	// A call ends when the command ends, when one of the call's two limits is reached, or when the
	// shell ends; these are results, not errors. A limit stops nothing: the command goes on, and a
	// later call returns the rest of its output, types something, or presses a key. When ctx ends,
	// the session is killed with everything that it has started, and the error wraps ctx's cause.
	Shell(ctx context.Context, call ShellCall) (ShellResult, error)
}

// A ShellOp is what a call of a shell does.
type ShellOp int

// The calls of a shell.
const (
	ShellRun   ShellOp = iota // run a command of one or more lines; refused while another one is running
	ShellInput                // type Text and press Enter
	ShellKey                  // press a control key: Text is its letter, such as "c" for C-c
	ShellWait                 // return more output of the running command
	ShellReset                // kill the session with everything that it has started
	// ShellLeave ends a session whose shell is waiting for a command. What it has started goes on. If
	// a command is running, the result is ShellBusy, and the session stays.
	ShellLeave
)

// A ShellCall is one call of a shell.
type ShellCall struct {
	Shell string // name of the session
	// ID, if it is not empty: the call is executed once. If it is repeated before the session's
	// next call, it returns the stored result and output.
	ID   string
	Op   ShellOp
	Text string // without NUL bytes

	// Dir, User and Env are those of a session that the call starts; "": as in Command.
	Dir  string
	User string
	Env  map[string]string

	// Stdout receives the output since the previous call, without escape codes, when the call ends.
	// Limit and FullLimit are those of a Command; a Limit of 0 is 1 MiB.
	Stdout           io.Writer
	Limit, FullLimit int64

	// Timeout limits the call; 0: limited by ctx only. Quiet ends it when there was no output for
	// so long; 0: never.
	Timeout, Quiet time.Duration
}

// A ShellEnd says why a call of a shell has ended.
type ShellEnd string

// Ends of calls.
const (
	ShellCompleted ShellEnd = "completed"   // the command has ended
	ShellQuiet     ShellEnd = "no_change"   // no output for ShellCall.Quiet; the command is running
	ShellTimeout   ShellEnd = "timeout"     // ShellCall.Timeout is over; the command is running
	ShellBusy      ShellEnd = "busy"        // not executed: the previous command is running
	ShellIdle      ShellEnd = "not_running" // not executed: no command is running that could take it
	ShellExited    ShellEnd = "exited"      // the shell has ended; the next call starts another one
)

// Running reports whether a command is running after the call.
func (e ShellEnd) Running() bool { return e == ShellQuiet || e == ShellTimeout || e == ShellBusy }

// A ShellResult is the result of a call.
type ShellResult struct {
	End    ShellEnd
	Code   int    // of the command or, if the shell has ended, of the shell; -1 if not known
	Signal string // that has ended the shell
	Dir    string // the shell's directory, as it names it; "": not known
	Full   string // path of the complete output of this call inside, if Limit left something out
	Out    int64  // length of the output, including what Limit left out
	OOM    bool   // the memory limit killed something meanwhile
	// Began: the call has started the session, so nothing was kept from earlier ones.
	Began bool
	Wall  time.Duration
}
