package execproto

import (
	"bufio"
	"bytes"
	stdhmac "crypto/hmac"
	stdsha256 "crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"pgregory.net/rapid"
)

func pair(t *testing.T, accept func(st *Stream, kind byte, body []byte)) (host, exec *Session) {
	t.Helper()
	a, b := net.Pipe()
	host = NewSession(a, Options{Host: true, MaxFrame: MaxReply})
	exec = NewSession(b, Options{MaxFrame: MaxOpen, Accept: accept})
	go host.Serve()
	go exec.Serve()
	t.Cleanup(func() { host.Close(); exec.Close() })
	return host, exec
}

func TestEcho(t *testing.T) {
	host, _ := pair(t, func(st *Stream, kind byte, body []byte) {
		go func() {
			for {
				m, err := st.Recv()
				if err != nil {
					return
				}
				if m.Kind == KindEOF {
					st.Send(KindResult, OK())
					st.Finish()
					return
				}
				st.Send(KindErr, m.Body)
			}
		}()
	})
	st, err := host.Open(KindExec, []byte("hello"))
	if err != nil {
		t.Fatal(err)
	}
	want := bytes.Repeat([]byte("0123456789abcdef"), 100_000)
	go func() {
		st.Send(KindData, want)
		st.Send(KindEOF, nil)
	}()
	var got []byte
	for {
		m, err := st.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if m.Kind == KindResult {
			break
		}
		got = append(got, m.Body...)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%d bytes came back, want %d", len(got), len(want))
	}
}

// The other side is told about a reset stream, also if a wait was interrupted, and Reset never
// waits for the other side.
func TestReset(t *testing.T) {
	for _, interrupted := range []bool{false, true} {
		heard := make(chan error, 1)
		host, exec := pair(t, func(st *Stream, kind byte, body []byte) {
			go func() {
				_, err := st.Recv()
				heard <- err
			}()
		})
		st, err := host.Open(KindExec, nil)
		if err != nil {
			t.Fatal(err)
		}
		if interrupted {
			why := errors.New("no time")
			st.Interrupt(why)
			if _, err := st.Recv(); err != why {
				t.Errorf("an interrupted wait: %v", err)
			}
		}
		st.Reset()
		st.Reset()
		select {
		case err := <-heard:
			if err != ErrReset {
				t.Errorf("interrupted %v: the other side has %v", interrupted, err)
			}
		case <-time.After(10 * time.Second):
			t.Errorf("interrupted %v: the other side did not hear of it", interrupted)
		}
		exec.mu.Lock()
		if n := len(exec.streams); n > 0 {
			t.Errorf("interrupted %v: the other side keeps %d streams", interrupted, n)
		}
		exec.mu.Unlock()
	}

	a, b := net.Pipe() // and nobody reads
	defer b.Close()
	host := NewSession(a, Options{Host: true, MaxFrame: MaxReply})
	defer host.Close()
	go io.ReadFull(b, make([]byte, headerLen+trailerLen))
	st, err := host.Open(KindExec, nil)
	if err != nil {
		t.Fatal(err)
	}
	st.Interrupt(errors.New("no time"))
	st.Reset()
}

// A slow reader slows the writer, holds no more than the window, and does not disturb other
// streams.
func TestCredit(t *testing.T) {
	sent := make(chan int, 1000)
	host, _ := pair(t, func(st *Stream, kind byte, body []byte) {
		go func() {
			if kind == KindGet {
				for n := 0; ; n += MaxData {
					if st.Send(KindData, make([]byte, MaxData)) != nil {
						close(sent)
						return
					}
					sent <- n
				}
			}
			st.Send(KindResult, OK())
			st.Finish()
		}()
	})
	slow, err := host.Open(KindGet, nil)
	if err != nil {
		t.Fatal(err)
	}
	for range Window / MaxData {
		<-sent
	}
	for range 10 { // each goes through although the other stream is full
		st, err := host.Open(KindStats, nil)
		if err != nil {
			t.Fatal(err)
		}
		if m, err := st.Recv(); err != nil || m.Kind != KindResult {
			t.Fatalf("%v %v", m, err)
		}
		st.Finish()
	}
	select {
	case n := <-sent:
		t.Errorf("sent %d bytes that nobody has read", n)
	default:
	}
	for range 100 {
		if _, err := slow.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	slow.Reset()
	for range sent { // ends with the stream
	}
}

func frame(id uint32, kind byte, body []byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(body)))
	b = binary.BigEndian.AppendUint32(b, id)
	return append(append(append(b, kind), body...), 0)
}

// hostile sends bytes to a host that has one open stream, and returns how its session ended.
func hostile(t *testing.T, send func(w io.Writer)) error {
	t.Helper()
	a, b := net.Pipe()
	s := NewSession(a, Options{Host: true, MaxFrame: MaxReply})
	done := make(chan error, 1)
	go func() { done <- s.Serve() }()
	go io.Copy(io.Discard, b)
	if _, err := s.Open(KindExec, nil); err != nil {
		t.Fatal(err)
	}
	go func() { send(b); b.Close() }()
	select {
	case err := <-done:
		return err
	case <-time.After(time.Minute):
		t.Fatal("the session did not end")
		return nil
	}
}

func TestHostilePeer(t *testing.T) {
	over := func(n int, f []byte) func(io.Writer) {
		return func(w io.Writer) {
			for range n {
				if _, err := w.Write(f); err != nil {
					return
				}
			}
		}
	}
	var credit Enc
	credit.Uint(Window)
	var huge Enc
	huge.Uint(1 << 62)
	for _, tt := range []struct {
		name string
		send func(io.Writer)
	}{
		{"a frame of 4 GB", func(w io.Writer) { w.Write([]byte{255, 255, 255, 255, 0, 0, 0, 1, KindData}) }},
		{"data beyond the window", over(1000, frame(1, KindData, make([]byte, MaxData)))},
		{"one frame of data too long", over(1, frame(1, KindData, make([]byte, MaxData+1)))},
		{"data beyond the window, byte by byte", over(Window+1, frame(1, KindData, []byte{1}))},
		{"kinds in turn, so that nothing can be joined", func(w io.Writer) {
			for range 100_000 {
				if _, err := w.Write(append(frame(1, KindData, []byte{1}),
					frame(1, KindErr, []byte{2})...)); err != nil {
					return
				}
			}
		}},
		{"small messages without end", over(100_000, frame(1, KindResult, nil))},
		{"more credit than there is", over(2, frame(1, KindCredit, credit))},
		{"credit that overflows", over(1, frame(1, KindCredit, huge))},
		{"streams of its own", over(1, frame(2, KindAccepted, nil))},
		{"streams of ours", over(1, frame(3, KindAccepted, nil))},
		{"an open stream opened", over(1, frame(1, KindExec, nil))},
		{"a control frame that does not exist", over(1, frame(0, 0xff, nil))},
		{"a frame without its end", over(1, append(frame(1, KindResult, nil)[:headerLen], "x"...))},
		{"a ping with a novel in it", over(1, frame(0, KindPing, make([]byte, 1000)))},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var m0, m1 runtime.MemStats
			runtime.ReadMemStats(&m0)
			if err := hostile(t, tt.send); !errors.Is(err, ErrProtocol) {
				t.Errorf("ended with %v, want ErrProtocol", err)
			}
			runtime.ReadMemStats(&m1)
			if grown := int64(m1.HeapAlloc) - int64(m0.HeapAlloc); grown > 16<<20 {
				t.Errorf("took %d bytes of memory", grown)
			}
		})
	}
	t.Run("cut off", func(t *testing.T) {
		if err := hostile(t, func(w io.Writer) { w.Write([]byte{0, 0, 0, 9, 0}) }); !errors.Is(err,
			io.ErrUnexpectedEOF) {
			t.Errorf("ended with %v", err)
		}
	})
}

func TestMessages(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := Exec{
			ID: rapid.String().Draw(t, "id"), Args: rapid.SliceOfN(rapid.String(), 1, 5).Draw(t, "args"),
			Dir:   rapid.String().Draw(t, "dir"),
			Stdin: rapid.Bool().Draw(t, "stdin"), Limit: rapid.Int64().Draw(t, "limit"),
			Timeout: time.Duration(rapid.Int64().Draw(t, "timeout")), Entry: rapid.Bool().Draw(t, "entry"),
			Trace: rapid.Bool().Draw(t, "trace"),
		}
		if got, err := DecodeExec(x.Encode()); err != nil || !reflect.DeepEqual(got, x) {
			t.Fatalf("%+v became %+v, %v", x, got, err)
		}
		c := Config{Version: Version, Root: x.Dir, Env: x.Args, Limits: map[string]uint64{"a": 1, "b": 2},
			Setup: []byte{1}, Drop: true, Setuid: true, Trace: true, Key: make([]byte, KeyLen)}
		if got, err := DecodeConfig(c.Encode()); err != nil || !reflect.DeepEqual(got, c) {
			t.Fatalf("%+v became %+v, %v", c, got, err)
		}
	})
}

// Records are the same however their stream is cut, and a length that is a lie costs nothing.
func TestRecords(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := FileChange{Path: "/" + rapid.String().Draw(t, "path"), What: Altered, Meta: rapid.Bool().Draw(t, "meta"),
			Turned: rapid.Bool().Draw(t, "turned"), Mode: rapid.Uint32().Draw(t, "mode"), UID: 1, GID: 2, Links: 3, Size: rapid.Int64().Draw(t, "size"), Target: "x"}
		var e Enc
		c.Encode(&e)
		gap := rapid.String().Draw(t, "gap")
		var b bytes.Buffer
		w := bufio.NewWriter(&b)
		for _, s := range []string{string(e), EncodeGap(gap)} {
			if err := WriteRecord(w, s); err != nil {
				t.Fatal(err)
			}
		}
		w.Flush()
		whole := b.String()
		r := bufio.NewReader(iotest.OneByteReader(&b))
		rec, err := ReadRecord(r, nil)
		if _, last := DecodeGap(rec); err != nil || last {
			t.Fatal(err, last)
		}
		d := NewDec(rec)
		if got := d.FileChange(); got != c || d.Err() != nil {
			t.Fatalf("%+v became %+v, %v", c, got, d.Err())
		}
		rec, err = ReadRecord(r, rec)
		if got, last := DecodeGap(rec); err != nil || !last || got != gap {
			t.Fatalf("%q, %v, %v", got, last, err)
		}
		if _, err := ReadRecord(r, rec); err != io.EOF {
			t.Fatal(err)
		}
		n := rapid.IntRange(1, len(e)).Draw(t, "cut")
		if _, err := ReadRecord(bufio.NewReader(strings.NewReader(whole[:n])), nil); err != io.ErrUnexpectedEOF {
			t.Fatal(err)
		}
	})
	long := binary.AppendUvarint(nil, MaxRecord+1)
	if _, err := ReadRecord(bufio.NewReader(bytes.NewReader(long)), nil); err != ErrMalformed {
		t.Error(err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add((&Exec{Args: []string{"a"}}).Encode())
	f.Add((&Config{Version: Version}).Encode())
	f.Add([]byte(Fail(io.EOF)))
	f.Fuzz(func(t *testing.T, b []byte) {
		DecodeExec(b)
		DecodeConfig(b)
		d := NewDec(b)
		d.Result()
		d.Exit()
		d.FileChange()
		d.Err()
	})
}

// A token is found wherever it stands, however the stream is cut, and nothing else is.
func TestTokenScanner(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := make([]byte, KeyLen)
		nonce := rapid.SliceOfN(rapid.Byte(), NonceLen, NonceLen).Draw(t, "nonce")
		token := Token(key, HostSpeaks, nonce)
		other := Token(append(key[:KeyLen-1:KeyLen-1], 1), HostSpeaks, nonce)
		junk := rapid.SampledFrom([][]byte{nil, []byte(mark), other, token[:TokenLen-1], token[:20],
			[]byte("\n\n\nevalrun "), frame(1, KindExec, make([]byte, 300))})
		var before []byte
		for _, j := range rapid.SliceOfN(junk, 0, 4).Draw(t, "before") {
			before = append(before, j...)
		}
		after := junk.Draw(t, "after")
		all := append(append(append([]byte(nil), before...), token...), after...)
		valid := func(tok []byte) bool {
			n, ok := CheckToken(key, HostSpeaks, tok)
			return ok && bytes.Equal(n, nonce)
		}
		var s TokenScanner
		for at := 0; at < len(all); {
			n := rapid.IntRange(1, len(all)-at).Draw(t, "piece")
			if end := s.Scan(all[at:at+n], valid); end >= 0 {
				if got := at + end; got != len(before)+TokenLen {
					t.Fatalf("the token ends at %d, found at %d", len(before)+TokenLen, got)
				}
				return
			}
			at += n
		}
		t.Fatal("not found")
	})
}

// No session takes a token, or a part of one, for a frame, whatever was begun before it.
func TestTokenIsNoFrame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		whole := frame(1, KindExec, rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, "body"))
		torn := whole[:rapid.IntRange(0, len(whole)-1).Draw(t, "torn")]
		token := Token(make([]byte, KeyLen), HostSpeaks,
			rapid.SliceOfN(rapid.Byte(), NonceLen, NonceLen).Draw(t, "nonce"))
		r := &frameReader{r: bytes.NewReader(append(bytes.Clone(torn), token...)), max: MaxOpen}
		if r.last = byte(rapid.IntRange(0, 8).Draw(t, "end")); len(torn) > 0 && r.last != 0 {
			torn[len(torn)-1] = r.last // even then
		}
		if id, kind, body, err := r.next(); err == nil {
			t.Fatalf("a frame: %d %d %q", id, kind, body)
		}
	})
}

// The standard library's are the measure.
func TestHMAC(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := bytes.Repeat([]byte("0123456789"), 40)[:rapid.IntRange(0, 400).Draw(t, "length")]
		p = append(p[:len(p):len(p)], rapid.SliceOfN(rapid.Byte(), 0, 70).Draw(t, "text")...)
		if got, want := sha256(p), stdsha256.Sum256(p); got != want {
			t.Fatalf("sha256: %x, want %x", got, want)
		}
		key := rapid.SliceOfN(rapid.Byte(), 0, 64).Draw(t, "key")
		m := stdhmac.New(stdsha256.New, key)
		m.Write(p)
		if got, want := hmac(key, p), m.Sum(nil); !bytes.Equal(got, want) {
			t.Fatalf("hmac: %x, want %x", got, want)
		}
	})
}
