// Package tape records what models answer and plays it again.
//
// A tape is a JSONL file, a line a reply, in the order in which they came; concurrent trials are mixed. A reply is found again by
//
//	benchmark, task, repeat, actor, role, model, n
//
// where n numbers the calls of that trial's actor and role from 0, so that concurrent trials and repeats replay right whatever their order.
// The line also has the arm, the attempt and the hash of the request:
//
//	{"v":1,"benchmark":"qa","task":"q1","repeat":1,"attempt":1,"arm":"a","actor":"","role":"main","model":"m","n":0,
//	 "request":"9f…","reply":{"id":"…","role":"main","model":"m-1","parts":[…],"calls":[…],"usage":{…}}}
//
// There are no raw bodies, no keys and no times in it. [Create] and [Recorder.Wrap] record, [Open] and [Tape.Factory] replay.
package tape

import (
	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/model"
)

// version of the lines that are written. A tape with a newer one is refused.
const version = 1

type line struct {
	V int `json:"v"`
	key
	Attempt int         `json:"attempt,omitempty"`
	Arm     string      `json:"arm,omitempty"`
	Request string      `json:"request"`
	Reply   event.Reply `json:"reply"`
}

type key struct {
	Benchmark string `json:"benchmark"`
	Task      string `json:"task"`
	Repeat    int    `json:"repeat"`
	Actor     string `json:"actor"`
	Role      string `json:"role"`
	Model     string `json:"model"`
	N         int    `json:"n"`
}

func keyOf(b model.Binding, name string, n int) key {
	return key{Benchmark: b.Benchmark, Task: b.Task, Repeat: b.Repeat, Actor: b.Actor, Role: b.Role, Model: name, N: n}
}
