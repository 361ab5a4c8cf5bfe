package execproto

import (
	"bytes"
	"encoding/hex"
)

// A machine outlives its host if the channel does (a container's streams). The next host proves
// with a token that it has the key given when the machine was started, and the executor answers
// with its own token. Both sides drop any input before the other's token, because it is left over
// from the dead host's session.
//
// A token is text: a mark, the nonce of the new host, and a MAC over both and over the sender's
// role. It contains no byte that can end a frame, and it does not begin like a frame header, so no
// session takes it or a part of it for a frame.

const (
	// KeyLen is the length of a key in bytes.
	KeyLen = 32
	// NonceLen is the length of a nonce in bytes.
	NonceLen = 16
	// TokenLen is the length of a token in bytes.
	TokenLen = len(mark) + 2*NonceLen + 2*sumLen

	mark = "\nevalrun resync "
)

// Sender of a token.
const (
	HostSpeaks     = "host"
	ExecutorSpeaks = "executor"
)

// SessionEnd returns the byte that ends the frames of the session with this nonce. Frames of the
// first host end in 0.
func SessionEnd(nonce []byte) byte { return 1 + nonce[0]%8 }

// Token returns the token of the sender who for this nonce.
func Token(key []byte, who string, nonce []byte) []byte {
	t := append(make([]byte, 0, TokenLen), mark...)
	t = hex.AppendEncode(t, nonce)
	return hex.AppendEncode(t, hmac(key, append([]byte(who), t...)))
}

// CheckToken returns the nonce of a token if who made it with this key.
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

// A TokenScanner searches for tokens in a stream given in pieces.
type TokenScanner struct {
	tail, joined []byte
}

// Scan searches the next piece. It calls valid for each candidate and stops at the first valid one.
// end is then the length of the part of p up to the end of the token, else -1.
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
