package jupyter

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

// A villain is a sandbox whose kernel is ours, so it can do everything that a hostile one can. What is
// nil is as usual.
type villain struct {
	sandbox.Sandbox
	key key

	greet  func(c net.Conn)                                        // instead of the whole connection
	answer func(p *peer, id, kind string, code string) (ours bool) // instead of an answer
	says   string                                                  // instead of the ports
	gone   chan struct{}                                           // ends the process
	iopub  chan *peer
}

func (v *villain) Exec(ctx context.Context, c sandbox.Command) (sandbox.Exit, error) {
	first, _, err := bufio.NewReader(c.Stdin).ReadLine()
	if err != nil {
		return sandbox.Exit{}, err
	}
	v.key = key(first)
	if v.says == "" {
		v.says = `{"shell":1,"iopub":2,"control":3}`
	}
	c.Stdout.Write([]byte(v.says + "\n"))
	select {
	case <-ctx.Done():
		return sandbox.Exit{}, ctx.Err()
	case <-v.gone:
		return sandbox.Exit{Code: -1, Signal: "SIGSEGV"}, nil
	}
}

func (v *villain) Dial(_ context.Context, port int) (net.Conn, error) {
	ours, theirs := net.Pipe()
	if v.greet != nil {
		go v.greet(ours)
		return theirs, nil
	}
	go v.serve(ours, port)
	return theirs, nil
}

// A peer is the other end of a connection.
type peer struct {
	*wire
	v *villain
}

func (v *villain) serve(c net.Conn, port int) {
	defer c.Close()
	// Both sides send first, so neither may wait for the other.
	go c.Write(greeting[:])
	w := &wire{c: c, r: bufio.NewReader(c)}
	if _, err := io.ReadFull(w.r, make([]byte, 64)); err != nil {
		return
	}
	if f, err := w.frame(); err != nil || !f.command {
		return
	} else if _, err := w.keep(f.size, maxCommand, 0, nil); err != nil {
		return
	}
	w.write([]byte("\x04\x1c\x05READY\x0bSocket-Type\x00\x00\x00\x06ROUTER"))
	p := &peer{w, v}
	if port == 2 {
		v.iopub <- p
	}
	for {
		var frames [][]byte
		for more := true; more; {
			f, err := w.frame()
			if err != nil {
				return
			}
			b, err := w.keep(f.size, 1<<20, 0, nil)
			if err != nil {
				return
			}
			frames, more = append(frames, b.b), f.more
		}
		if len(frames) != 6 || port != 1 {
			continue
		}
		var head struct {
			ID   string `json:"msg_id"`
			Kind string `json:"msg_type"`
		}
		var content struct{ Code string }
		if json.Unmarshal(frames[2], &head) != nil || json.Unmarshal(frames[5], &content) != nil {
			continue
		}
		if v.answer == nil || !v.answer(p, head.ID, head.Kind, content.Code) {
			p.reply(head.ID, `{"status":"ok"}`)
			p.idle(head.ID)
		}
	}
}

// message returns the frames of an answer to a request.
func (p *peer) message(id, kind, content string) [][]byte {
	header, parent := fmt.Appendf(nil, `{"msg_type":%q}`, kind), fmt.Appendf(nil, `{"msg_id":%q}`, id)
	return [][]byte{[]byte(delimiter), p.v.key.sign(header, parent, []byte("{}"), []byte(content)), header, parent,
		[]byte("{}"), []byte(content)}
}

func (p *peer) reply(id, content string) { p.send(p.message(id, "execute_reply", content)...) }

// published returns the peer that listens to what is published.
func (p *peer) published() *peer {
	out := <-p.v.iopub
	p.v.iopub <- out
	return out
}

func (p *peer) publish(id, kind, content string) {
	out := p.published()
	out.send(p.message(id, kind, content)...)
}

func (p *peer) idle(id string) { p.publish(id, "status", `{"execution_state":"idle"}`) }

// act runs a cell with a villain.
func act(t *testing.T, v *villain) (Result, error) {
	v.gone, v.iopub = make(chan struct{}), make(chan *peer, 1)
	k := New(func(context.Context) (sandbox.Sandbox, error) { return v, nil }, Options{}, false)
	r, err := k.Run(t.Context(), Cell{Code: "cell", Timeout: 30 * time.Second})
	select {
	case <-v.gone:
	default:
		close(v.gone)
	}
	k.Leave(t.Context())
	return r, err
}

// in makes an answer to the cell alone.
func in(f func(p *peer, id string)) func(*peer, string, string, string) bool {
	return func(p *peer, id, kind, code string) bool {
		if code == "cell" {
			f(p, id)
		}
		return code == "cell"
	}
}

func TestVillains(t *testing.T) {
	garbage := func(s string) func(net.Conn) {
		return func(c net.Conn) {
			go io.Copy(io.Discard, c)
			io.WriteString(c, s)
		}
	}
	ok := func(p *peer, id string) {
		p.reply(id, `{"status":"ok"}`)
		p.idle(id)
	}
	hi := func(p *peer, id, s string) {
		p.publish(id, "stream", fmt.Sprintf(`{"name":"stdout","text":%q}`, s))
	}
	for _, c := range []struct {
		name    string
		v       *villain
		refused string // the beginning of the reason
		words   string
		ended   string
		late    bool
	}{
		{name: "a good one", v: &villain{answer: in(func(p *peer, id string) { hi(p, id, "hi"); ok(p, id) })}, words: "hi"},
		{name: "no ports", v: &villain{says: "{}"}, refused: "it did not start within"}, // port 0 is silent here
		{name: "no JSON", v: &villain{says: "x"}, refused: "the kernel did not start"},
		{name: "an error", v: &villain{says: `{"error":"E: no"}`}, refused: "python3 cannot start ipykernel"},
		{name: "silence", v: &villain{greet: func(c net.Conn) { io.Copy(io.Discard, c) }}, refused: "it did not start within"},
		{name: "closed", v: &villain{greet: func(c net.Conn) { c.Close() }}, refused: ""},
		{name: "another protocol", v: &villain{greet: garbage(strings.Repeat("HTTP/1.1 400 Bad Request\r\n", 5))},
			refused: "the other side does not speak ZMTP"},
		{name: "security", v: &villain{greet: garbage("\xff00000000\x7f\x03\x00CURVE" + strings.Repeat("\x00", 60))},
			refused: "the other side does not speak ZMTP"},
		{name: "a huge handshake", v: &villain{greet: garbage(string(greeting[:]) + "\x06\x40\x00\x00\x00\x00\x00\x00\x00")},
			refused: "the handshake is no command"},
		{name: "an error in the handshake", v: &villain{greet: garbage(string(greeting[:]) + "\x04\x0a\x05ERROR\x03bad")},
			refused: "the handshake was refused"},
		{name: "deaf from the start", v: &villain{answer: func(*peer, string, string, string) bool { return true }},
			refused: "it did not start within"},
		{name: "never idle", v: &villain{answer: in(func(p *peer, id string) { hi(p, id, "hi"); p.reply(id, `{"status":"ok"}`) })},
			words: "hi"},
		{name: "no reply", v: &villain{answer: in(func(p *peer, id string) { hi(p, id, "hi"); p.idle(id) })}, words: "hi",
			ended: NotInterrupted, late: true},
		{name: "silence in a cell", v: &villain{answer: in(func(*peer, string) {})}, ended: NotInterrupted, late: true},
		{name: "silence after a cell", v: &villain{answer: func(_ *peer, _, kind, code string) bool {
			return kind == "execute_request" && code == ""
		}}},
		{name: "a wrong signature", v: &villain{answer: in(func(p *peer, id string) {
			m := p.message(id, "stream", `{"name":"stdout","text":"forged"}`)
			m[1] = bytes.Repeat([]byte("0"), 64)
			p.published().send(m...)
			m[1] = nil
			p.published().send(m...)
			p.published().send(m[2:]...)
			hi(p, id, "hi")
			ok(p, id)
		})}, words: "hi"},
		{name: "garbage in frames", v: &villain{answer: in(func(p *peer, id string) {
			out := p.published()
			for _, frames := range [][][]byte{{nil}, {[]byte(delimiter)}, {[]byte(delimiter), nil}, {nil, nil, nil, nil, nil, nil, nil, nil},
				p.message(id, "stream", `{"text":7}`), p.message(id, "stream", `no JSON`), p.message("other", "stream", `{"text":"x"}`),
				p.message(id, "display_data", `{"data":{"image/png":"not base64!"}}`), p.message(id, "display_data", `{"data":[]}`),
				append(p.message(id, "stream", `{"text":"ok"}`), []byte("a buffer"), nil)} {
				out.send(frames...)
			}
			ok(p, id)
		})}, words: "[10 bytes of the kind \"stream\" are left out]\n[7 bytes of the kind \"stream\" are left out]\n" +
			"[11 bytes of the kind \"display_data\" are left out]\nok\n[1 pictures are left out: each may have 5 MiB]\n"},
		{name: "garbage for frames", v: &villain{answer: in(func(p *peer, id string) {
			hi(p, id, "hi")
			p.published().write(bytes.Repeat([]byte{0xa5}, 100))
		})}, words: "hi", ended: "its connection was lost"},
		{name: "a crash", v: &villain{answer: in(func(p *peer, id string) { hi(p, id, "hi"); close(p.v.gone) })}, words: "hi",
			ended: "was ended by SIGSEGV"},
		{name: "a reply that is no JSON", v: &villain{answer: in(func(p *peer, id string) { p.reply(id, "x"); p.idle(id) })}},
		{name: "many replies", v: &villain{answer: in(func(p *peer, id string) {
			for range 100 {
				ok(p, id)
			}
		})}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, err := act(t, c.v)
				no := new(Refused)
				if errors.As(err, &no) {
					if !strings.HasPrefix(no.Why, c.refused) || c.refused == "" && c.name != "closed" {
						t.Errorf("refused: %s", no.Why)
					}
					return
				}
				if err != nil || c.refused != "" || words(r) != c.words || r.Ended != c.ended || r.TimedOut != c.late {
					t.Errorf("%q %+v %v", words(r), facts(r), err)
				}
			})
		})
	}
}

// A frame of any size is read without more memory, and so is a message that never ends.
func TestVillainMemory(t *testing.T) {
	const size = 256 << 20
	chunk := bytes.Repeat([]byte("x"), 1<<20)
	for _, how := range []string{"one frame", "many frames", "a message without end"} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		r, err := act(t, &villain{answer: in(func(p *peer, id string) {
			out := p.published()
			w := bufio.NewWriter(out.c)
			switch how {
			case "one frame":
				m := p.message(id, "stream", "")
				for _, f := range m[:5] {
					w.Write(append([]byte{flagMore, byte(len(f))}, f...))
				}
				w.Write(binary.BigEndian.AppendUint64([]byte{flagLong}, size))
				for range size / len(chunk) {
					w.Write(chunk)
				}
			case "many frames":
				for range 100 {
					w.Write(binary.BigEndian.AppendUint64([]byte{flagLong}, uint64(len(chunk))))
					w.Write(chunk)
				}
			case "a message without end":
				for range 200_000 {
					w.Write([]byte{flagMore, 1, 'x'})
				}
				w.Write([]byte{0, 0})
			}
			w.Flush()
			p.publish(id, "stream", `{"text":"hi"}`)
			p.reply(id, `{"status":"ok"}`)
			p.idle(id)
		})})
		runtime.ReadMemStats(&after)
		if err != nil || words(r) != "hi" {
			t.Errorf("%s: %q %+v %v", how, words(r), facts(r), err)
		}
		if used := int64(after.HeapSys) - int64(before.HeapSys); used > 32<<20 {
			t.Errorf("%s: the heap has grown by %d bytes", how, used)
		}
	}
}

func FuzzRead(f *testing.F) {
	p := &peer{v: &villain{key: key("k")}}
	var b bytes.Buffer
	for _, m := range [][][]byte{p.message("id", "stream", `{"text":"x"}`), {[]byte(delimiter), nil}} {
		for i, x := range m {
			more := byte(flagMore)
			if i == len(m)-1 {
				more = 0
			}
			b.Write(append([]byte{more, byte(len(x))}, x...))
		}
	}
	f.Add(b.Bytes())
	f.Add([]byte("\x02\x00\x00\x00\x00\x7f\xff\xff\xffxyz"))
	f.Fuzz(func(t *testing.T, data []byte) {
		w := &wire{r: bufio.NewReader(bytes.NewReader(data))}
		out := &output{}
		for {
			m, ok, err := key("k").read(w)
			if err != nil {
				break
			}
			if ok {
				out.add(m)
			}
		}
		for _, p := range out.done() {
			if strings.Contains(p.Text, "\x1b[") {
				t.Errorf("%q", p.Text)
			}
		}
	})
}

// FuzzOutput has messages with the right signature.
func FuzzOutput(f *testing.F) {
	f.Add("stream", []byte(`{"name":"stdout","text":"abc\n`), []byte(`\u00e4\"xyz"}`), int64(9))
	f.Add("display_data", []byte(`{"data":{"image/png":["aGk=\n"],"text/plain":["a","b"]}}`), []byte(nil), int64(0))
	f.Add("error", []byte(`{"ename":"E","evalue":"v","traceback":["\u001b[31mx"]}`), []byte(nil), int64(0))
	f.Fuzz(func(t *testing.T, kind string, b, tail []byte, left int64) {
		out := &output{}
		m := message{kind: kind, content: piece{b: b, tail: tail, left: max(left, 0) % (1 << 40)}}
		for range 3 {
			out.add(m)
		}
		n := 0
		for _, p := range out.done() {
			n += len(p.Text)
		}
		if n > 3*maxText+1000 { // bytes that are not UTF-8 become three
			t.Errorf("%d bytes", n)
		}
	})
}
