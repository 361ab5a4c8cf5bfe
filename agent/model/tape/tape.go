// Package tape records what models answer and plays it again.
//
// A tape is a JSONL file, a line a reply, in the order in which they came; concurrent trials are
// mixed. A reply is found again by
//
//	benchmark, task, repeat, actor, role, model, n
//
// where n numbers the calls of that trial's actor and role from 0, so that concurrent trials and
// repeats replay right whatever their order. The line also has the arm, the attempt, the hash of
// the request and the sampling parameters that were in force:
//
//	{"v":2,"benchmark":"qa","task":"q1","repeat":1,"actor":"","role":"main","model":"m","n":0,"attempt":1,"arm":"a",
//	 "request":"9f…","params":{"temperature":0.2},"reply":{"id":"…","role":"main","model":"m-1","parts":[…],"usage":{…}}}
//
// Lines of version 1 say no sampling parameters, and their n begins at 0 in each stage of a trial;
// [Open] numbers them anew. There are no raw bodies, no keys and no times on a tape. [Create] and
// [Recorder.Wrap] record, [Open] and [Tape.Factory] replay.
package tape

import (
	"encoding/json"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/model"
)

// version of the lines that are written. A tape with a newer one is refused.
const version = 2

type line struct {
	V int `json:"v"`
	key
	Attempt int             `json:"attempt,omitempty"`
	Arm     string          `json:"arm,omitempty"`
	Request string          `json:"request"`
	Params  json.RawMessage `json:"params,omitempty"` // [sampling]
	Reply   event.Reply     `json:"reply"`
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

// sampling is the one text for parameters; "" for none.
func sampling(p model.Params) (string, error) {
	b, err := json.Marshal(p) // with sorted keys
	if err != nil {
		return "", err
	}
	if string(b) == "{}" {
		return "", nil
	}
	return string(b), nil
}
