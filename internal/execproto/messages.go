package execproto

import (
	"errors"
	"io/fs"
	"syscall"
	"time"
)

// Version is the version of the protocol. Both sides must have the same, because the executor is
// part of the host's own binary.
const Version = 8

// Kinds that open a stream, with their body and the response.
const (
	KindHello    = 1 + iota // Config → Result, body: HelloReply; must be the first
	KindExec                // Exec → data, then Result with an Exit
	KindPut                 // PutReq, then a tar stream and EOF → Result
	KindGet                 // String name → a tar stream, then Result
	KindDial                // Uint port → Result, then data in both directions
	KindListen              // Uint port → Result, body: Uint port; then the executor opens KindAccepted streams
	KindAccepted            // executor to host: Uint ID of the listening stream; data in both directions
	KindStats               // → Result, body: Stats
	KindKillAll             // empty, or Bool: ENTRYPOINT too → Result
	KindRemember            // String id → Result, body: Bool known, Exit
	// Uint version → Result, body: Int orphan; the first message of a host that reattaches to the
	// machine
	KindResume
)

// Kinds from 0x20 up to KindData belong to parts of the executor with their own files: 0x20 to
// filechanges.go, 0x28 to changed.go, 0x30 to tun.go, 0x38 to shell.go, 0x3c to terminal.go, 0x3d to
// readonly.go.

// Config is the host's first message.
type Config struct {
	Version uint64
	Root    string            // base of paths; "" or "/" is the machine's own root
	Env     []string          // for every command
	Dir     string            // default working directory
	User    string            // default user
	OnlyUID bool              // commands can only run as the executor's own user
	Orphan  time.Duration     // exit after this long without a message; 0 means never
	Limits  map[string]uint64 // for every command: "nproc", "as", "nofile", "core", "fsize", "data"
	Setup   []byte            // for package isolate; applied first
	Drop    bool              // drop capabilities, forbid new privileges, filter system calls
	// Setuid, with Drop: setuid programs work, so new privileges (up to the kept capabilities) are
	// not forbidden and no system calls are filtered.
	Setuid bool
	Key    []byte // KeyLen random bytes that allow another host to reattach to the machine; nil means none can
	Tun    bool   // create a network interface, see KindTun; errors are reported by KindTun
	Trace  bool   // commands can be traced, for which process 1 has CAP_SYS_PTRACE; needs Drop
	// Hosts is the descriptor of a listening socket on which another host can reattach, with the key;
	// 0 means on the channel itself. The machine then outlives its channel, up to Orphan.
	Hosts uint64
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
	e.Bool(c.Trace)
	e.Uint(c.Hosts)
	return e
}

// CheckVersion returns an error if the host speaks another version.
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
	c.Trace = d.Bool()
	c.Hosts = d.Uint()
	if len(c.Key) != 0 && len(c.Key) != KeyLen {
		return c, errors.New("a key of another length")
	}
	if c.Hosts != 0 && (len(c.Key) == 0 || c.Orphan <= 0) {
		return c, errors.New("a socket for other hosts without a key, or without a time without one")
	}
	return c, d.Err()
}

// Exec is a request to run one command.
type Exec struct {
	ID               string
	Args             []string
	Dir, User        string
	Env              []string // in addition to Config.Env
	Stdin            bool
	Merge            bool // redirect stderr to stdout
	Discard          bool // discard stdout (with Merge: all output)
	Limit, FullLimit int64
	Timeout          time.Duration
	Entry            bool // the machine's ENTRYPOINT, which neither KillAll nor the end of a host stops
	Trace            bool // send KindLookups before the Result
	Files            bool // instead of Args: carry out the file operation on stdin; see package fileop
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
	e.Bool(x.Trace)
	e.Bool(x.Files)
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
	x.Trace = d.Bool()
	x.Files = d.Bool()
	return x, d.Err()
}

// Exit is the result of a command.
type Exit struct {
	Code         int
	Signal, Full string
	TimedOut     bool
	Out, Err     int64
	Wall, CPU    time.Duration
	MaxRSS       int64
	// OOM is set if the kernel killed a process for the machine's memory limit meanwhile, if that
	// can be seen from inside.
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

// Exit decodes an Exit.
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

// Stats are resource statistics as seen by the executor; -1 means not known.
type Stats struct {
	Pids                              int64
	Disk, Memory, MaxMemory, OOMKills int64
	CPU, Throttled                    int64 // ns
}

func (s *Stats) fields() []*int64 {
	return []*int64{&s.Pids, &s.Disk, &s.Memory, &s.MaxMemory, &s.OOMKills, &s.CPU, &s.Throttled}
}

// Encode appends s.
func (s *Stats) Encode(e *Enc) {
	for _, f := range s.fields() {
		e.Int(*f)
	}
}

// Stats decodes a Stats.
func (d *Dec) Stats() (s Stats) {
	for _, f := range s.fields() {
		*f = d.Int()
	}
	return s
}

// LeftOut is the PAX record that marks a tar entry whose content is not sent; its value is the
// reason. Package sandbox, which reads such streams, has the same constant.
const LeftOut = "EVALRUN.left_out"

// Error codes of a Result, besides its text.
const (
	failNone = iota
	failOther
	failNotExist
	failUnsupported
	failPermission
	failNoSpace
)

// An Unsupported error keeps its type when sent over the wire.
type Unsupported struct{ What string }

func (u *Unsupported) Error() string { return u.What }

// OK returns the start of a successful Result; the caller appends the body.
func OK() Enc { return Enc{failNone} }

// Fail returns a complete Result for err.
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

// A Failure is an error that the other side reported.
type Failure struct {
	Text string
	Kind error // fs.ErrNotExist …, or nil
}

func (f *Failure) Error() string { return f.Text }
func (f *Failure) Unwrap() error { return f.Kind }

// Result decodes the start of a Result. It returns nil or the error that the other side reported. A
// body may follow.
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
