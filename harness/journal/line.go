package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/evalrun/evalrun/harness/record"

	"github.com/evalrun/evalrun/harness/journal/internal/admit"
)

// Line format:
//
//	{"seq":17,"crc":"0a1b2c3d","e":{"v":1,"seq":17,"time":"2026-11-21T10:00:07.120000Z","trial":"…","attempt":1,"fence":3,"kind":"event","data":{…}}}
//
// where crc is the CRC-32C of the bytes of e, and e is a record.Entry. Lines are encoded and parsed
// by hand: the data comes from our own codecs and is copied without another scan, and encoding it
// again inside an envelope would cost more than everything else. Lines in another JSON form,
// written by another program, are parsed with encoding/json.

// maxLine is the length of the longest line that readers parse, in bytes.
const maxLine = admit.MaxData + 64<<10

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

const crcPlace = `00000000","e":`

// appendLine appends the line of e, including the newline. Newlines inside the data become spaces;
// in JSON they can only occur between tokens.
func appendLine(dst []byte, e *record.Entry) []byte {
	dst = append(dst, `{"seq":`...)
	dst = strconv.AppendInt(dst, e.Seq, 10)
	dst = append(dst, `,"crc":"`+crcPlace...)
	start := len(dst)
	dst = append(dst, `{"v":`...)
	dst = strconv.AppendInt(dst, int64(e.V), 10)
	dst = append(dst, `,"seq":`...)
	dst = strconv.AppendInt(dst, e.Seq, 10)
	dst = append(dst, `,"time":"`...)
	dst = appendTime(dst, e.Time)
	dst = append(dst, '"')
	if e.Trial != "" {
		dst = append(dst, `,"trial":`...)
		dst = appendString(dst, e.Trial)
	}
	if e.Attempt != 0 {
		dst = append(dst, `,"attempt":`...)
		dst = strconv.AppendInt(dst, int64(e.Attempt), 10)
	}
	if e.Fence != 0 {
		dst = append(dst, `,"fence":`...)
		dst = strconv.AppendInt(dst, e.Fence, 10)
	}
	dst = append(dst, `,"kind":`...)
	dst = appendString(dst, e.Kind)
	dst = append(dst, `,"data":`...)
	data := len(dst)
	dst = append(dst, e.Data...)
	for i := bytes.IndexByte(dst[data:], '\n'); i >= 0; i = bytes.IndexByte(dst[data:], '\n') {
		data += i
		dst[data] = ' '
	}
	dst = append(dst, '}')
	crc := crc32.Checksum(dst[start:], castagnoli)
	const digits = "0123456789abcdef"
	for i := range 8 {
		dst[start-len(crcPlace)+i] = digits[crc>>(28-4*i)&15]
	}
	return append(dst, '}', '\n')
}

const timeForm = "2006-01-02T15:04:05.000000Z"

func appendTime(dst []byte, t time.Time) []byte { return t.UTC().AppendFormat(dst, timeForm) }

func appendString(dst []byte, s string) []byte {
	for i := 0; i < len(s); i++ {
		if b := s[i]; b < 0x20 || b == '"' || b == '\\' || b >= utf8.RuneSelf {
			j, _ := json.Marshal(s) // marshaling a string cannot fail
			return append(dst, j...)
		}
	}
	dst = append(dst, '"')
	dst = append(dst, s...)
	return append(dst, '"')
}

// A raw is a parsed line. Its slices point into the line.
type raw struct {
	v, attempt  int
	seq, fence  int64
	time        []byte // in timeForm
	trial, kind []byte
	data        []byte
}

// Parse errors of a line.
var (
	errForm     = errors.New("not a journal line")
	errChecksum = errors.New("wrong checksum")
	errOrder    = errors.New("an entry whose number was there before")
)

// parse parses a line without its newline.
func (r *raw) parse(line []byte) error {
	if ok, err := r.fast(line); ok || err != nil {
		return err
	}
	return r.slow(line)
}

// fast parses exactly what appendLine writes. It returns false if the line may be JSON in another
// form.
func (r *raw) fast(line []byte) (bool, error) {
	s, ok := bytes.CutPrefix(line, []byte(`{"seq":`))
	if !ok {
		return false, nil
	}
	seq, s, ok := cutInt(s)
	if !ok {
		return false, nil
	}
	if s, ok = bytes.CutPrefix(s, []byte(`,"crc":"`)); !ok || len(s) < len(crcPlace)+3 {
		return false, nil
	}
	crc, ok := hex32(s[:8])
	if !ok {
		return false, nil
	}
	if s, ok = bytes.CutPrefix(s[8:], []byte(crcPlace[8:])); !ok || s[len(s)-1] != '}' {
		return false, nil
	}
	e := s[:len(s)-1]
	if crc32.Checksum(e, castagnoli) != crc {
		return false, errChecksum
	}
	*r = raw{}
	return r.entry(e) && r.seq == seq, nil
}

// entry parses e as appendLine writes it.
func (r *raw) entry(e []byte) bool {
	s, ok := bytes.CutPrefix(e, []byte(`{"v":`))
	if !ok {
		return false
	}
	v, s, ok := cutInt(s)
	if !ok {
		return false
	}
	r.v = int(v)
	if s, ok = bytes.CutPrefix(s, []byte(`,"seq":`)); !ok {
		return false
	}
	if r.seq, s, ok = cutInt(s); !ok {
		return false
	}
	if s, ok = bytes.CutPrefix(s, []byte(`,"time":"`)); !ok || len(s) <= len(timeForm) || s[len(timeForm)] != '"' {
		return false
	}
	r.time, s = s[:len(timeForm)], s[len(timeForm)+1:]
	if _, ok := parseTime(r.time); !ok {
		return false
	}
	if t, ok := bytes.CutPrefix(s, []byte(`,"trial":"`)); ok {
		if r.trial, s, ok = cutString(t); !ok {
			return false
		}
	}
	if t, ok := bytes.CutPrefix(s, []byte(`,"attempt":`)); ok {
		n, t, ok := cutInt(t)
		if !ok {
			return false
		}
		r.attempt, s = int(n), t
	}
	if t, ok := bytes.CutPrefix(s, []byte(`,"fence":`)); ok {
		if r.fence, s, ok = cutInt(t); !ok {
			return false
		}
	}
	if s, ok = bytes.CutPrefix(s, []byte(`,"kind":"`)); !ok {
		return false
	}
	if r.kind, s, ok = cutString(s); !ok {
		return false
	}
	if s, ok = bytes.CutPrefix(s, []byte(`,"data":`)); !ok || len(s) < 2 || s[len(s)-1] != '}' {
		return false
	}
	r.data = s[:len(s)-1]
	return true
}

// slow parses a line as any JSON.
func (r *raw) slow(line []byte) error {
	var env struct {
		Seq int64           `json:"seq"`
		CRC string          `json:"crc"`
		E   json.RawMessage `json:"e"`
	}
	if err := json.Unmarshal(line, &env); err != nil {
		return errForm
	}
	crc, ok := hex32([]byte(env.CRC))
	if !ok || len(env.E) == 0 {
		return errForm
	}
	if crc32.Checksum(env.E, castagnoli) != crc {
		return errChecksum
	}
	var e record.Entry
	if err := json.Unmarshal(env.E, &e); err != nil {
		// Look at the version first: a newer format may have changed the type of a field, which is
		// not damage.
		var v struct{ V int }
		if _ = json.Unmarshal(env.E, &v); v.V <= record.Version {
			return errForm
		}
		e = record.Entry{V: v.V, Seq: env.Seq}
	}
	if e.Seq != env.Seq {
		return errForm
	}
	*r = raw{
		v: e.V, seq: e.Seq, attempt: e.Attempt, fence: e.Fence, time: appendTime(nil, e.Time),
		trial: []byte(e.Trial), kind: []byte(e.Kind), data: e.Data,
	}
	return nil
}

func cutInt(s []byte) (int64, []byte, bool) {
	neg := len(s) > 0 && s[0] == '-'
	if neg {
		s = s[1:]
	}
	var n int64
	i := 0
	for ; i < len(s) && i < 18 && s[i] >= '0' && s[i] <= '9'; i++ {
		n = n*10 + int64(s[i]-'0')
	}
	if i == 0 || i < len(s) && s[i] >= '0' && s[i] <= '9' || i > 1 && s[0] == '0' {
		return 0, nil, false
	}
	if neg {
		n = -n
	}
	return n, s[i:], true
}

// cutString parses a string without escapes, up to its closing quote.
func cutString(s []byte) (str, rest []byte, ok bool) {
	i := bytes.IndexByte(s, '"')
	if i < 0 {
		return nil, nil, false
	}
	for _, b := range s[:i] {
		if b < 0x20 || b == '\\' || b >= utf8.RuneSelf {
			return nil, nil, false
		}
	}
	return s[:i], s[i+1:], true
}

func hex32(s []byte) (n uint32, ok bool) {
	if len(s) != 8 {
		return 0, false
	}
	for _, b := range s {
		switch {
		case b >= '0' && b <= '9':
			n = n<<4 | uint32(b-'0')
		case b >= 'a' && b <= 'f':
			n = n<<4 | uint32(b-'a'+10)
		default:
			return 0, false
		}
	}
	return n, true
}

// parseTime parses a time in timeForm.
func parseTime(s []byte) (time.Time, bool) {
	num := func(i, n int) (v int, ok bool) {
		for _, b := range s[i : i+n] {
			if b < '0' || b > '9' {
				return 0, false
			}
			v = v*10 + int(b-'0')
		}
		return v, true
	}
	if len(s) != len(timeForm) || s[4] != '-' || s[7] != '-' || s[10] != 'T' || s[13] != ':' || s[16] != ':' ||
		s[19] != '.' || s[26] != 'Z' {
		return time.Time{}, false
	}
	y, ok1 := num(0, 4)
	mo, ok2 := num(5, 2)
	d, ok3 := num(8, 2)
	h, ok4 := num(11, 2)
	mi, ok5 := num(14, 2)
	sec, ok6 := num(17, 2)
	us, ok7 := num(20, 6)
	if !(ok1 && ok2 && ok3 && ok4 && ok5 && ok6 && ok7) || mo < 1 || mo > 12 || d < 1 || d > 31 || h > 23 || mi > 59 ||
		sec > 59 {
		return time.Time{}, false
	}
	t := time.Date(y, time.Month(mo), d, h, mi, sec, us*1000, time.UTC)
	return t, t.Day() == d
}

// names interns strings, because the same few trials and kinds occur again and again.
type names map[string]string

func (n names) get(b []byte) string {
	if s, ok := n[string(b)]; ok {
		return s
	}
	if len(n) >= 4096 {
		clear(n)
	}
	s := string(b)
	n[s] = s
	return s
}

// toEntry converts r into an Entry that does not point into the line.
func (r *raw) toEntry(n names) record.Entry {
	t, _ := parseTime(r.time)
	return record.Entry{
		V: r.v, Seq: r.seq, Time: t, Trial: n.get(r.trial), Attempt: r.attempt, Fence: r.fence, Kind: n.get(r.kind),
		Data: bytes.Clone(r.data),
	}
}

// newer returns an error if a later version wrote the entry.
func newer(v int) error {
	if v <= record.Version {
		return nil
	}
	return fmt.Errorf("%w (form %d, this program reads up to %d): use the evalrun that wrote it, or a later one",
		ErrNewer, v, record.Version)
}
