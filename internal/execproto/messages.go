package execproto

import (
	"errors"
	"io/fs"
	"syscall"
	"time"
)

// Version of the protocol. Both sides must have the same: the executor comes out of the host's own
// binary.
const Version = 4

// Kinds that open a stream, with the body they carry and what comes back.
const (
	KindHello    = 1 + iota // Config → Result, body: HelloReply. Must be the first.
	KindExec                // Exec → data, then Result with an Exit
	KindPut                 // PutReq, then a tar stream and EOF → Result
	KindGet                 // String name → a tar stream, then Result
	KindDial                // Uint port → Result, then data both ways
	KindListen              // Uint port → Result, body: Uint port; then the executor opens KindAccepted streams
	KindAccepted            // executor to host: Uint id of the listening stream; data both ways
	KindStats               // → Result, body: Stats
	KindKillAll             // nothing, or Bool: ENTRYPOINT too → Result
	KindRemember            // String id → Result, body: Bool known, Exit
	// Uint version → Result, body: Int orphan; the first word of a host that has taken the machine
	// up again
	KindResume
)

// Kinds from 0x20 up to KindData belong to parts of the executor with files of their own: 0x20 to
// look.go, 0x30 to tun.go.

// Config is the host's first message.
type Config struct {
	Version uint64
	Root    string            // what paths are relative to; "" or "/": the machine's own
	Env     []string          // of every command
	Dir     string            // default working directory
	User    string            // default user
	OnlyUID bool              // no other user than the executor's own can be taken
	Orphan  time.Duration     // end after so long without a word; 0: never
	Limits  map[string]uint64 // of every command: "nproc", "as", "nofile", "core", "fsize", "data"
	Setup   []byte            // for isolate, before anything else
	Drop    bool              // drop capabilities, forbid new privileges, filter system calls
	// with Drop: setuid programs work, so new privileges, up to the kept ones, are not forbidden,
	// and no call is filtered
	Setuid bool
	Key    []byte // KeyLen random bytes, by which another host can take the machine up again; nil: none can
	Tun    bool   // make a network interface, see KindTun; where that fails, KindTun tells
}

func (c *Config) Encode() []byte {
	var e Enc
	e.Uint(c.Version)
	e.String(c.Root)
	e.Strings(c.Env)
	e.String(c.Dir)
	e.String(c.User)
	e.Bool(c.OnlyUID)
	e.Int(int64(c.Orphan))
	e.Uint(uint64(len(c.Limits)))
	for k, v := range c.Limits {
		e.String(k)
		e.Uint(v)
	}
	e.String(string(c.Setup))
	e.Bool(c.Drop)
	e.Bool(c.Setuid)
	e.String(string(c.Key))
	e.Bool(c.Tun)
	return e
}

// CheckVersion refuses a host that speaks another version.
func CheckVersion(v uint64) error {
	if v != Version {
		return errors.New("the executor speaks another version of the protocol; run make to build it again")
	}
	return nil
}

func DecodeConfig(b []byte) (c Config, err error) {
	d := NewDec(b)
	c.Version = d.Uint()
	if err := CheckVersion(c.Version); err != nil {
		return c, err
	}
	c.Root = d.String()
	c.Env = d.Strings()
	c.Dir = d.String()
	c.User = d.String()
	c.OnlyUID = d.Bool()
	c.Orphan = time.Duration(d.Int())
	for n := d.Uint(); n > 0 && !d.bad; n-- {
		if c.Limits == nil {
			c.Limits = map[string]uint64{}
		}
		k := d.String()
		c.Limits[k] = d.Uint()
	}
	c.Setup = []byte(d.String())
	c.Drop = d.Bool()
	c.Setuid = d.Bool()
	if k := d.String(); k != "" {
		c.Key = []byte(k)
	}
	c.Tun = d.Bool()
	if len(c.Key) != 0 && len(c.Key) != KeyLen {
		return c, errors.New("a key of another length")
	}
	return c, d.Err()
}

// Exec asks for one command.
type Exec struct {
	ID               string
	Args             []string
	Dir, User        string
	Env              []string // added to Config.Env
	Stdin            bool
	Merge            bool // stderr goes where stdout goes
	Discard          bool // no stdout (with Merge: no output at all)
	Limit, FullLimit int64
	Timeout          time.Duration
	Entry            bool // the machine's ENTRYPOINT: KillAll leaves it alone, and so does the end of a host
}

func (x *Exec) Encode() []byte {
	var e Enc
	e.String(x.ID)
	e.Strings(x.Args)
	e.String(x.Dir)
	e.String(x.User)
	e.Strings(x.Env)
	e.Bool(x.Stdin)
	e.Bool(x.Merge)
	e.Bool(x.Discard)
	e.Int(x.Limit)
	e.Int(x.FullLimit)
	e.Int(int64(x.Timeout))
	e.Bool(x.Entry)
	return e
}

func DecodeExec(b []byte) (x Exec, err error) {
	d := NewDec(b)
	x.ID = d.String()
	x.Args = d.Strings()
	x.Dir = d.String()
	x.User = d.String()
	x.Env = d.Strings()
	x.Stdin = d.Bool()
	x.Merge = d.Bool()
	x.Discard = d.Bool()
	x.Limit = d.Int()
	x.FullLimit = d.Int()
	x.Timeout = time.Duration(d.Int())
	x.Entry = d.Bool()
	return x, d.Err()
}

// Exit is what became of a command.
type Exit struct {
	Code         int
	Signal, Full string
	TimedOut     bool
	Out, Err     int64
	Wall, CPU    time.Duration
	MaxRSS       int64
	// the kernel has killed for the machine's memory limit meanwhile; only where that can be seen
	// from inside
	OOM bool
}

func (x *Exit) Encode(e *Enc) {
	e.Int(int64(x.Code))
	e.String(x.Signal)
	e.String(x.Full)
	e.Bool(x.TimedOut)
	e.Int(x.Out)
	e.Int(x.Err)
	e.Int(int64(x.Wall))
	e.Int(int64(x.CPU))
	e.Int(x.MaxRSS)
	e.Bool(x.OOM)
}

// Exit reads an Exit.
func (d *Dec) Exit() (x Exit) {
	x.Code = int(d.Int())
	x.Signal = d.String()
	x.Full = d.String()
	x.TimedOut = d.Bool()
	x.Out = d.Int()
	x.Err = d.Int()
	x.Wall = time.Duration(d.Int())
	x.CPU = time.Duration(d.Int())
	x.MaxRSS = d.Int()
	x.OOM = d.Bool()
	return x
}

// Stats as the executor sees them; -1: not known.
type Stats struct {
	Pids                              int64
	Disk, Memory, MaxMemory, OOMKills int64
	CPU, Throttled                    int64 // ns
}

func (s *Stats) fields() []*int64 {
	return []*int64{&s.Pids, &s.Disk, &s.Memory, &s.MaxMemory, &s.OOMKills, &s.CPU, &s.Throttled}
}

// Encode appends the numbers.
func (s *Stats) Encode(e *Enc) {
	for _, f := range s.fields() {
		e.Int(*f)
	}
}

// Stats reads Stats.
func (d *Dec) Stats() (s Stats) {
	for _, f := range s.fields() {
		*f = d.Int()
	}
	return s
}

// LeftOut is the PAX record of an entry in a tar stream that stands for what is not sent; its value
// says why. Package sandbox, which reads such streams, has the same.
const LeftOut = "EVALRUN.left_out"

// Failures that a Result can name, beside the text.
const (
	failNone = iota
	failOther
	failNotExist
	failUnsupported
	failPermission
	failNoSpace
)

// An Unsupported error crosses the wire as such.
type Unsupported struct{ What string }

func (u *Unsupported) Error() string { return u.What }

// OK begins a Result without failure; the caller adds its body.
func OK() Enc { return Enc{failNone} }

// Fail is a whole Result for err.
func Fail(err error) Enc {
	code := uint64(failOther)
	var u *Unsupported
	switch {
	case errors.Is(err, fs.ErrNotExist):
		code = failNotExist
	case errors.Is(err, fs.ErrPermission):
		code = failPermission
	case errors.Is(err, syscall.ENOSPC):
		code = failNoSpace
	case errors.As(err, &u):
		code = failUnsupported
	}
	var e Enc
	e.Uint(code)
	s := err.Error()
	if len(s) > 4096 {
		s = s[:4096]
	}
	e.String(s)
	return e
}

// A Failure is what the other side reported.
type Failure struct {
	Text string
	Kind error // fs.ErrNotExist …, or nil
}

func (f *Failure) Error() string { return f.Text }
func (f *Failure) Unwrap() error { return f.Kind }

// Result reads the beginning of a Result: nil, or what the other side reported. A body may follow.
func (d *Dec) Result() error {
	code := d.Uint()
	if d.bad {
		return ErrMalformed
	}
	if code == failNone {
		return nil
	}
	text := d.String()
	if d.bad {
		return ErrMalformed
	}
	switch code {
	case failNotExist:
		return &Failure{text, fs.ErrNotExist}
	case failPermission:
		return &Failure{text, fs.ErrPermission}
	case failNoSpace:
		return &Failure{text, syscall.ENOSPC}
	case failUnsupported:
		return &Unsupported{text}
	}
	return &Failure{Text: text}
}
