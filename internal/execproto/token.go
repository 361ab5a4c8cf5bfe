package execproto

import (
	"bytes"
	"encoding/hex"
)

// A machine outlives its host where the channel does (a container's streams). The next host proves
// with a token that it has the key of the machine's start, and the executor answers with one of its
// own. What either side finds in its input before the other's token is what the dead host's session
// has left: it is dropped.
//
// A token is text: a mark, the nonce of the host that comes, and a code over both and over who
// speaks. It holds no byte in which frames end and begins like no header, so that no session ever
// takes it, or a part of it, for a frame.

const (
	// KeyLen is the length of a key.
	KeyLen = 32
	// NonceLen is the length of a nonce.
	NonceLen = 16
	// TokenLen is the length of a token.
	TokenLen = len(mark) + 2*NonceLen + 2*sumLen

	mark = "\nevalrun resync "
)

// Who speaks in a token.
const (
	HostSpeaks     = "host"
	ExecutorSpeaks = "executor"
)

// SessionEnd is the byte in which the frames of the session end that began with this nonce; those
// of the first host's end in 0.
func SessionEnd(nonce []byte) byte { return 1 + nonce[0]%8 }

// Token is who's word for this nonce.
func Token(key []byte, who string, nonce []byte) []byte {
	t := append(make([]byte, 0, TokenLen), mark...)
	t = hex.AppendEncode(t, nonce)
	return hex.AppendEncode(t, hmac(key, append([]byte(who), t...)))
}

// CheckToken returns the nonce of a token that who has made with this key.
func CheckToken(key []byte, who string, token []byte) (nonce []byte, ok bool) {
	if len(token) != TokenLen || len(key) != KeyLen {
		return nil, false
	}
	nonce, err := hex.DecodeString(string(token[len(mark) : len(mark)+2*NonceLen]))
	if err != nil {
		return nil, false
	}
	return nonce, same(token, Token(key, who, nonce))
}

// A TokenScanner looks for tokens in a stream that it is shown piece by piece.
type TokenScanner struct {
	tail, joined []byte
}

// Scan looks at the next piece. It calls valid for whatever looks like a token; the first that is
// one ends the search: end is how much of p belongs to it and to what was before it. Without one,
// end is -1.
func (s *TokenScanner) Scan(p []byte, valid func(token []byte) bool) (end int) {
	s.joined = append(append(s.joined[:0], s.tail...), p...)
	b := s.joined
	for at := 0; ; at++ {
		i := bytes.Index(b[at:], []byte(mark))
		if i < 0 || at+i+TokenLen > len(b) {
			break
		}
		at += i
		if valid(b[at : at+TokenLen]) {
			end = at + TokenLen - len(s.tail)
			s.tail = s.tail[:0]
			return end
		}
	}
	s.tail = append(s.tail[:0], b[max(0, len(b)-TokenLen+1):]...)
	return -1
}
