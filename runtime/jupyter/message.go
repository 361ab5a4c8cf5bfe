package jupyter

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"
)

const (
	delimiter  = "<IDS|MSG>"
	maxHeader  = 64 << 10
	maxContent = 8 << 20 // a picture of maxImage bytes in base64 fits
)

// A key signs the messages of a kernel.
type key []byte

func (k key) sign(frames ...[]byte) []byte {
	h := hmac.New(sha256.New, k)
	for _, f := range frames {
		h.Write(f)
	}
	return hex.AppendEncode(nil, h.Sum(nil))
}

// send sends a request.
func (k key) send(w *wire, id, kind string, content any) error {
	body, err := json.Marshal(content)
	if err != nil {
		return err
	}
	header, err := json.Marshal(map[string]string{"msg_id": id, "msg_type": kind, "session": "evalrun",
		"username": "agent", "version": "5.3", "date": time.Now().UTC().Format(time.RFC3339Nano)})
	if err != nil {
		return err
	}
	empty := []byte("{}")
	return w.send([]byte(delimiter), k.sign(header, empty, empty, body), header, empty, empty, body)
}

// A message is one that the kernel has sent, as far as it was kept.
type message struct {
	kind    string // type: "stream", "execute_reply" …
	parent  string // ID of the request that it answers
	content piece
}

// decode decodes the content, if all of it was kept.
func (m message) decode(to any) bool {
	return m.content.left == 0 && json.Unmarshal(m.content.b, to) == nil
}

// read reads a message. The result ok is false if it is none of the protocol, or has a wrong
// signature.
func (k key) read(w *wire) (m message, ok bool, err error) {
	h := hmac.New(sha256.New, k)
	var signature, header, parent piece
	// Names of the receiver come first, then the delimiter and these parts, and then raw data, which
	// is not signed.
	parts := []struct {
		to        *piece
		max, edge int64
		signed    bool
	}{{&signature, 64, 0, false}, {&header, maxHeader, 0, true}, {&parent, maxHeader, 0, true}, {new(piece), 0, 0, true},
		{&m.content, maxContent, maxText / 2, true}}
	at := -1
	for more := true; more; {
		f, err := w.frame()
		if err != nil {
			return m, false, err
		}
		if f.command {
			if _, err := w.keep(f.size, 0, 0, nil); err != nil {
				return m, false, err
			}
			continue
		}
		more = f.more
		switch {
		case at < 0:
			p, err := w.keep(f.size, int64(len(delimiter)), 0, nil)
			if err != nil {
				return m, false, err
			}
			if string(p.b) == delimiter {
				at = 0
			}
		case at < len(parts):
			part := parts[at]
			to := h
			if !part.signed {
				to = nil
			}
			if *part.to, err = w.keep(f.size, part.max, part.edge, to); err != nil {
				return m, false, err
			}
			at++
		default:
			if _, err := w.keep(f.size, 0, 0, nil); err != nil {
				return m, false, err
			}
		}
	}
	if at < len(parts) || !hmac.Equal(hex.AppendEncode(nil, h.Sum(nil)), signature.b) {
		return m, false, nil
	}
	var head struct {
		Kind string `json:"msg_type"`
		ID   string `json:"msg_id"`
	}
	if header.left > 0 || parent.left > 0 || json.Unmarshal(parent.b, &head) != nil {
		return m, false, nil
	}
	m.parent, head.ID = head.ID, ""
	if json.Unmarshal(header.b, &head) != nil {
		return m, false, nil
	}
	m.kind = head.Kind
	return m, true, nil
}
