package execproto

// KindTerminal runs a command on a terminal of its own: Terminal → data in both directions, then
// Result with an Exit. KindReset and KindSignal with -1 kill the command with all that it has
// started. KindSignal with 0 and two Uints, rows and columns, changes the terminal's size.
const KindTerminal = 0x3c

// Terminal is a request to run a command on a terminal.
type Terminal struct {
	Args       []string
	Dir, User  string
	Env        []string
	Rows, Cols uint64
}

func (x *Terminal) Encode() []byte {
	var e Enc
	e.Strings(x.Args)
	e.String(x.Dir)
	e.String(x.User)
	e.Strings(x.Env)
	e.Uint(x.Rows)
	e.Uint(x.Cols)
	return e
}

func DecodeTerminal(b []byte) (x Terminal, err error) {
	d := NewDec(b)
	x.Args = d.Strings()
	x.Dir = d.String()
	x.User = d.String()
	x.Env = d.Strings()
	x.Rows = d.Uint()
	x.Cols = d.Uint()
	return x, d.Err()
}
