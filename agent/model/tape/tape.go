// Package tape records the replies of models and replays them.
//
// A tape is a JSONL file with one reply per line, in the order in which the replies came; lines of
// concurrent trials are interleaved. A reply is looked up by
//
//	benchmark, task, repeat, actor, role, model, n
//
// where n counts the calls of the trial's actor and role from 0. Concurrent trials and repeats are
// thus replayed correctly in any order. A line also has the arm, the attempt, the hash of the
// request and the sampling parameters that were in effect:
//
//	{"v":2,"benchmark":"qa","task":"q1","repeat":1,"actor":"","role":"main","model":"m","n":0,
//	 "attempt":1,"arm":"a","request":"9f…","params":{"temperature":0.2},
//	 "reply":{"id":"…","role":"main","model":"m-1","parts":[…],"usage":{…}}}
//
// Lines of version 1 have no sampling parameters, and their n restarts at 0 in each stage of a
// trial; [Open] renumbers them. A tape contains no raw bodies, keys or times. [Create] and
// [Recorder.Wrap] record, [Open] and [Tape.Factory] replay.
package tape

import (
	"encoding/json"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/model"
)

// version is the version of the lines written. Tapes with newer lines are rejected.
const version = 2

type line struct {
	V int `json:"v"`
	key
	Attempt int             `json:"attempt,omitempty"`
	Arm     string          `json:"arm,omitempty"`
	Request string          `json:"request"`
	Params  json.RawMessage `json:"params,omitempty"` // as encoded by [sampling]
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

// sampling returns the canonical encoding of p; "" if no parameter is set.
func sampling(p model.Params) (string, error) {
	b, err := json.Marshal(p) // map keys are sorted
	if err != nil {
		return "", err
	}
	if string(b) == "{}" {
		return "", nil
	}
	return string(b), nil
}
