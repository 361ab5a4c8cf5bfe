package execproto

import "time"

// KindShell is one call of a persistent shell: Shell → data (the output), then Result with a
// ShellResult. KindReset and KindSignal with -1 kill the shell.
const KindShell = 0x38

// Operations of a Shell, as in package sandbox.
const (
	ShellRun = iota
	ShellInput
	ShellKey
	ShellWait
	ShellReset
	ShellLeave
)

// Ends of a call.
const (
	ShellCompleted = iota
	ShellQuiet
	ShellTimeout
	ShellBusy
	ShellIdle
	ShellExited
)

// Shell is a request to a shell.
type Shell struct {
	Name, ID         string
	Op               uint64
	Text             string
	Dir, User        string
	Env              []string
	Limit, FullLimit int64
	Timeout, Quiet   time.Duration
}

func (x *Shell) Encode() []byte {
	var e Enc
	e.String(x.Name)
	e.String(x.ID)
	e.Uint(x.Op)
	e.String(x.Text)
	e.String(x.Dir)
	e.String(x.User)
	e.Strings(x.Env)
	e.Int(x.Limit)
	e.Int(x.FullLimit)
	e.Int(int64(x.Timeout))
	e.Int(int64(x.Quiet))
	return e
}

func DecodeShell(b []byte) (x Shell, err error) {
	d := NewDec(b)
	x.Name = d.String()
	x.ID = d.String()
	x.Op = d.Uint()
	x.Text = d.String()
	x.Dir = d.String()
	x.User = d.String()
	x.Env = d.Strings()
	x.Limit = d.Int()
	x.FullLimit = d.Int()
	x.Timeout = time.Duration(d.Int())
	x.Quiet = time.Duration(d.Int())
	return x, d.Err()
}

// ShellResult is the result of a Shell.
type ShellResult struct {
	End               uint64
	Code              int
	Signal, Dir, Full string
	Out               int64
	OOM, Began        bool
	Wall              time.Duration
}

func (x *ShellResult) Encode(e *Enc) {
	e.Uint(x.End)
	e.Int(int64(x.Code))
	e.String(x.Signal)
	e.String(x.Dir)
	e.String(x.Full)
	e.Int(x.Out)
	e.Bool(x.OOM)
	e.Bool(x.Began)
	e.Int(int64(x.Wall))
}

// ShellResult decodes a ShellResult.
func (d *Dec) ShellResult() (x ShellResult) {
	x.End = d.Uint()
	x.Code = int(d.Int())
	x.Signal = d.String()
	x.Dir = d.String()
	x.Full = d.String()
	x.Out = d.Int()
	x.OOM = d.Bool()
	x.Began = d.Bool()
	x.Wall = time.Duration(d.Int())
	return x
}
