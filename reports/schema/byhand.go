package schema

import (
	"time"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/harness/record"
)

// scan parses an envelope by hand. It returns false if encoding/json has to parse it.
func (w *envelope) scan(data []byte) bool {
	return object(data, func(key, v []byte) bool {
		switch string(key) {
		case "id":
			return integer(v, &w.ID)
		case "time":
			return moment(v, &w.Time)
		case "mono_us":
			return integer(v, &w.MonoUS)
		case "source":
			return text(v, &w.Source)
		case "actor":
			return text(v, &w.Actor)
		case "cause":
			w.Cause = new(int64)
			return !isNull(v) && integer(v, w.Cause)
		case "call":
			if isNull(v) {
				return true
			}
			w.Call = &event.Call{}
			return scanCall(v, w.Call)
		case "timeout_ms":
			return integer(v, &w.TimeoutMS)
		case "class":
			return text(v, &w.Class)
		case "kind":
			return text(v, &w.Kind)
		case "body":
			w.Body = v
		case "blob":
			return other(v, &w.Blob)
		default:
			return plainKey(key)
		}
		return true
	})
}

// plainKey reports whether a key can only match literally. For other keys encoding/json ignores
// case and decodes escapes.
func plainKey(key []byte) bool {
	for _, c := range key {
		if c >= 'A' && c <= 'Z' || c == '\\' || c >= 0x80 {
			return false
		}
	}
	return true
}

func scanCall(data []byte, c *event.Call) bool {
	var index, of int64
	ok := object(data, func(key, v []byte) bool {
		switch string(key) {
		case "reply":
			return text(v, &c.Reply)
		case "id":
			return text(v, &c.ID)
		case "name":
			return text(v, &c.Name)
		case "index":
			return integer(v, &index)
		case "of":
			return integer(v, &of)
		}
		return plainKey(key)
	})
	c.Index, c.Of = int(index), int(of)
	return ok
}

// scanBody parses the most frequent kinds of bodies. It returns nil if the codec has to parse the
// body.
func scanBody(class, kind string, data []byte) event.Body {
	switch {
	case kind == "run" && class == "action":
		var b event.Run
		if object(data, func(key, v []byte) bool {
			switch string(key) {
			case "command":
				return text(v, &b.Command)
			case "args":
				return other(v, &b.Args)
			case "dir":
				return text(v, &b.Dir)
			case "user":
				return text(v, &b.User)
			case "session":
				return boolean(v, &b.Session)
			case "is_input":
				return boolean(v, &b.Input)
			case "blocking":
				return boolean(v, &b.Blocking)
			}
			return plainKey(key)
		}) {
			return b
		}
	case kind == "run" && class == "observation":
		var b event.RunResult
		var code int64
		if object(data, func(key, v []byte) bool {
			switch string(key) {
			case "code":
				return integer(v, &code)
			case "signal":
				return text(v, &b.Signal)
			case "timed_out":
				return boolean(v, &b.TimedOut)
			case "oom":
				return boolean(v, &b.OOM)
			case "running":
				return boolean(v, &b.Running)
			case "prefix":
				return text(v, &b.Prefix)
			case "suffix":
				return text(v, &b.Suffix)
			case "output":
				return text(v, &b.Output)
			case "stderr":
				return text(v, &b.Stderr)
			case "out_bytes":
				return integer(v, &b.OutBytes)
			case "err_bytes":
				return integer(v, &b.ErrBytes)
			case "truncated":
				return boolean(v, &b.Truncated)
			case "full":
				return text(v, &b.Full)
			case "blob":
				return other(v, &b.Blob)
			case "dir":
				return text(v, &b.Dir)
			case "wall_ms":
				return integer(v, &b.WallMS)
			}
			return plainKey(key)
		}) {
			b.Code = int(code)
			return b
		}
	case kind == "reply" && class == "note":
		return scanReply(data)
	}
	return nil
}

func scanReply(data []byte) event.Body {
	var b event.Reply
	if !object(data, func(key, v []byte) bool {
		switch string(key) {
		case "id":
			return text(v, &b.ID)
		case "role":
			return text(v, &b.Role)
		case "model":
			return text(v, &b.Model)
		case "parts":
			return array(v, func(v []byte) bool {
				var p event.Part
				b.Parts = append(b.Parts, p)
				return scanPart(v, &b.Parts[len(b.Parts)-1])
			})
		case "reasoning":
			return text(v, &b.Reasoning)
		case "calls":
			return array(v, func(v []byte) bool {
				var c event.ReplyCall
				ok := object(v, func(key, v []byte) bool {
					switch string(key) {
					case "id":
						return text(v, &c.ID)
					case "name":
						return text(v, &c.Name)
					case "args":
						return text(v, &c.Args)
					}
					return plainKey(key)
				})
				b.Calls = append(b.Calls, c)
				return ok
			})
		case "stop":
			return text(v, &b.Stop)
		case "usage":
			return scanUsage(v, func(key, v []byte) bool {
				u := &b.Usage
				switch string(key) {
				case "in":
					return integer(v, &u.In)
				case "out":
					return integer(v, &u.Out)
				case "cached":
					return integer(v, &u.Cached)
				case "cache_write":
					return integer(v, &u.CacheWrite)
				case "reasoning":
					return integer(v, &u.Reasoning)
				case "cost":
					return number(v, &u.Cost)
				}
				return plainKey(key)
			})
		case "opaque": // not in any column
			return true
		}
		return plainKey(key)
	}) {
		return nil
	}
	return b
}

func scanPart(data []byte, p *event.Part) bool {
	return object(data, func(key, v []byte) bool {
		switch string(key) {
		case "text":
			return text(v, &p.Text)
		case "blob":
			return other(v, &p.Blob)
		}
		return plainKey(key)
	})
}

func scanUsage(v []byte, f func(key, v []byte) bool) bool { return isNull(v) || object(v, f) }

// scanModelCall parses a record.Call by hand.
func scanModelCall(data []byte, c *record.Call) bool {
	var n, try, latency, waited, http int64
	ok := object(data, func(key, v []byte) bool {
		switch string(key) {
		case "actor":
			return text(v, &c.Actor)
		case "role":
			return text(v, &c.Role)
		case "n":
			return integer(v, &n)
		case "try":
			return integer(v, &try)
		case "model":
			return text(v, &c.Model)
		case "request":
			return text(v, &c.Request)
		case "reply":
			return text(v, &c.Reply)
		case "from":
			return text(v, &c.From)
		case "stop":
			return text(v, &c.Stop)
		case "usage":
			return scanUsage(v, func(key, v []byte) bool {
				u := &c.Usage
				switch string(key) {
				case "calls":
					return integer(v, &u.Calls)
				case "silent":
					return integer(v, &u.Silent)
				case "in":
					return integer(v, &u.In)
				case "out":
					return integer(v, &u.Out)
				case "cached":
					return integer(v, &u.Cached)
				case "cache_write":
					return integer(v, &u.CacheWrite)
				case "reasoning":
					return integer(v, &u.Reasoning)
				case "cost":
					return number(v, &u.Cost)
				}
				return plainKey(key)
			})
		case "start":
			return moment(v, &c.Start)
		case "latency_ns":
			return integer(v, &latency)
		case "waited_ns":
			return integer(v, &waited)
		case "http":
			return integer(v, &http)
		case "error":
			return text(v, &c.Error)
		case "class":
			return text(v, &c.Class)
		case "id":
			return text(v, &c.ID)
		case "raw":
			if !isNull(v) {
				c.Raw = v
			}
		case "raw_blob":
			return text(v, &c.RawBlob)
		case "sent":
			return text(v, &c.Sent)
		default:
			return plainKey(key)
		}
		return true
	})
	c.N, c.Try, c.HTTP = int(n), int(try), int(http)
	c.Latency, c.Waited = time.Duration(latency), time.Duration(waited)
	return ok
}
