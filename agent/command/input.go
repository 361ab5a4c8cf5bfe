package command

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"unicode/utf8"
)

// An input reads the program's messages.
type input struct {
	r        *bufio.Reader
	messages chan message  // closed at the end; err and lines are set by then
	flooded  chan struct{} // closed when too many messages wait; err is set by then
	queued   atomic.Int64  // bytes of the waiting messages
	err      error
	lines    int
}

func newInput(r io.Reader) *input {
	return &input{r: bufio.NewReaderSize(r, 64<<10), messages: make(chan message, maxWaiting),
		flooded: make(chan struct{})}
}

func (in *input) handled(m message) { in.queued.Add(-int64(len(m.line))) }

func (in *input) read() {
	defer close(in.messages)
	for {
		b, err := in.line()
		if err != nil {
			in.err = err
			return
		}
		m, err := in.parse(b)
		if err != nil {
			in.err = err
			return
		}
		if m.Type == "" {
			continue
		}
		if in.queued.Add(int64(len(b))) > maxQueued && len(in.messages) > 0 {
			defer close(in.flooded)
			in.err = fmt.Errorf("line %d of its output: more than %d MiB of messages wait for their answers; read "+
				"the answers", in.lines, maxQueued>>20)
			return
		}
		select {
		case in.messages <- m:
		default:
			defer close(in.flooded)
			in.err = fmt.Errorf("line %d of its output: more than %d messages wait for their answers; read the answers",
				in.lines, maxWaiting)
			return
		}
		if m.Type == typeFinish { // ignore everything after it
			in.err = io.EOF
			io.Copy(io.Discard, in.r)
			return
		}
	}
}

// line reads one line. The last line may lack its line break.
func (in *input) line() ([]byte, error) {
	var out []byte
	for {
		b, err := in.r.ReadSlice('\n')
		out = append(out, b...)
		if len(out) > maxLine {
			return nil, fmt.Errorf("line %d of its output is longer than %d MiB", in.lines+1, maxLine>>20)
		}
		switch {
		case err == nil:
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF) && len(bytes.TrimSpace(out)) > 0:
		default:
			return nil, err
		}
		in.lines++
		return bytes.TrimRight(out, "\r\n"), nil
	}
}

// parse decodes the fields that all messages have. It accepts empty lines and returns no message
// for them.
func (in *input) parse(b []byte) (message, error) {
	m := message{line: b, n: in.lines}
	if len(bytes.TrimSpace(b)) == 0 {
		return m, nil
	}
	const hint = "; its output is for messages alone, print to stderr"
	switch {
	case bytes.IndexByte(b, 0) >= 0:
		return m, fmt.Errorf("line %d of its output has a NUL byte: %s%s", in.lines, excerpt(b), hint)
	case !utf8.Valid(b):
		return m, fmt.Errorf("line %d of its output is not UTF-8: %s%s", in.lines, excerpt(b), hint)
	}
	if err := json.Unmarshal(b, &m); err != nil {
		if !json.Valid(b) {
			return m, fmt.Errorf("line %d of its output is not JSON: %s%s", in.lines, excerpt(b), hint)
		}
		return m, fmt.Errorf("line %d of its output is not a message: %s; a message is an object with type, and id "+
			"where it is a request", in.lines, excerpt(b))
	}
	if m.Type == "" {
		return m, fmt.Errorf("line %d of its output is a message without type: %s", in.lines, excerpt(b))
	}
	return m, nil
}
