package docker

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/evalrun/evalrun/runtime/image"
)

// command matches builders' messages that the command of a step failed; they quote it, so they may
// contain anything.
var command = regexp.MustCompile(`executor failed running|did not complete successfully|returned a non-zero code`)

// source matches builders' messages that the source of COPY or ADD does not exist.
var source = regexp.MustCompile(`^(COPY|ADD) failed: |failed to (compute cache key|calculate checksum of ref)[^\n]*not found|lstat [^\n]*no such file or directory`)

// stopped matches the last message of an engine that is being shut down. The caller has not
// canceled.
var stopped = regexp.MustCompile(`context canceled|code = (Canceled|Unavailable)|transport is closing|shutting down`)

// An unavailableError says, in the engine's words, that it is unavailable.
type unavailableError struct{ error }

func (e unavailableError) Unwrap() error      { return e.error }
func (unavailableError) Is(target error) bool { return target == image.ErrAway }

// A sourceError says, in the engine's words, that a build copies a file that does not exist.
type sourceError struct{ error }

func (sourceError) Is(target error) bool { return target == image.ErrSource }

// follow reads the messages of a pull or build to the end. The engine's error is one of them.
func (e *engine) follow(ctx context.Context, body io.Reader, each func(report)) error {
	dec := json.NewDecoder(body)
	for {
		var m report
		err := dec.Decode(&m)
		switch {
		case err == io.EOF:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			if unreachable(err) || errors.Is(err, io.ErrUnexpectedEOF) {
				return unavailableError{fmt.Errorf("the docker engine at %s broke off: %w", e.name(), err)}
			}
			return fmt.Errorf("the answer of the docker engine at %s cannot be read: %w", e.name(), err)
		case m.Error != "" && full(m.Error) && !command.MatchString(m.Error):
			return fmt.Errorf("%w: %s", image.ErrDiskFull, m.Error)
		case m.Error != "" && stopped.MatchString(m.Error) && !command.MatchString(m.Error):
			return unavailableError{fmt.Errorf("the docker engine at %s gave up: %s", e.name(), m.Error)}
		case m.Error != "" && source.MatchString(m.Error) && !command.MatchString(m.Error):
			return sourceError{errors.New(m.Error)}
		case m.Error != "":
			return errors.New(m.Error)
		}
		each(m)
	}
}

// A trace converts the messages of builders to text: the classic builder sends text, BuildKit
// records (StatusResponse of its control API, in protobuf) of steps and their output.
type trace struct {
	log   io.Writer
	step  func(string)
	known map[string]*vertex // by digest
}

type vertex struct {
	n            int
	name         string
	begun, ended bool
	broken       bool // its last line is not complete
}

func newTrace(log io.Writer, step func(string)) *trace {
	if log == nil {
		log = io.Discard
	}
	if step == nil {
		step = func(string) {}
	}
	return &trace{log: log, step: step, known: map[string]*vertex{}}
}

// plain handles text of the classic builder. "Step 2/5 : RUN make" begins a step.
func (t *trace) plain(s string) {
	if strings.HasPrefix(s, "Step ") {
		t.step(strings.TrimSpace(s))
	}
	io.WriteString(t.log, s)
}

// read handles one record, and skips what it does not know.
func (t *trace) read(aux json.RawMessage) {
	var raw []byte
	if json.Unmarshal(aux, &raw) != nil {
		return
	}
	fields(raw, func(n int, _ uint64, b []byte) {
		switch n {
		case 1:
			t.vertex(b)
		case 3:
			t.output(b)
		}
	})
}

func (t *trace) vertex(raw []byte) {
	var digest, name, failed string
	var started, completed, cached bool
	fields(raw, func(n int, v uint64, b []byte) {
		switch n {
		case 1:
			digest = string(b)
		case 3:
			name = string(b)
		case 4:
			cached = v != 0
		case 5:
			started = true
		case 6:
			completed = true
		case 7:
			failed = string(b)
		}
	})
	x := t.known[digest]
	if x == nil {
		x = &vertex{name: name}
		t.known[digest] = x
	}
	if started && !x.begun {
		x.begun = true
		t.number(x)
		if !strings.HasPrefix(name, "[internal]") {
			t.step(name)
		}
		fmt.Fprintf(t.log, "#%d %s\n", x.n, name)
	}
	if completed && !x.ended {
		x.ended = true
		t.number(x)
		switch {
		case failed != "":
			fmt.Fprintf(t.log, "#%d failed: %s\n", x.n, failed)
		case cached:
			fmt.Fprintf(t.log, "#%d cached\n", x.n)
		}
	}
}

// number assigns a number to a step with its first output.
func (t *trace) number(x *vertex) {
	if x.n != 0 {
		return
	}
	for _, y := range t.known {
		x.n = max(x.n, y.n)
	}
	x.n++
}

func (t *trace) output(raw []byte) {
	var digest string
	var text []byte
	fields(raw, func(n int, _ uint64, b []byte) {
		switch n {
		case 1:
			digest = string(b)
		case 4:
			text = b
		}
	})
	x := t.known[digest]
	if x == nil || len(text) == 0 {
		return
	}
	t.number(x)
	for line := range strings.Lines(strings.ToValidUTF8(string(text), string(utf8.RuneError))) {
		if !x.broken {
			fmt.Fprintf(t.log, "#%d ", x.n)
		}
		io.WriteString(t.log, line)
		x.broken = !strings.HasSuffix(line, "\n")
	}
}

// fields iterates over the fields of a protobuf message: v is the value of a number, b the bytes of
// a field with a length. It stops at what it does not know.
func fields(raw []byte, each func(n int, v uint64, b []byte)) {
	for len(raw) > 0 {
		tag, k := binary.Uvarint(raw)
		if k <= 0 {
			return
		}
		raw = raw[k:]
		switch tag & 7 {
		case 0:
			v, k := binary.Uvarint(raw)
			if k <= 0 {
				return
			}
			raw = raw[k:]
			each(int(tag>>3), v, nil)
		case 1, 5:
			size := 8
			if tag&7 == 5 {
				size = 4
			}
			if len(raw) < size {
				return
			}
			raw = raw[size:]
		case 2:
			size, k := binary.Uvarint(raw)
			if k <= 0 || size > uint64(len(raw)-k) {
				return
			}
			each(int(tag>>3), 0, raw[k:k+int(size)])
			raw = raw[k+int(size):]
		default:
			return
		}
	}
}
