package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
)

// serve starts a fake model with an OpenAI-compatible API. It clicks on elements that the goal
// names in quotes, or on others, and types text that it has read. Its replies are recorded as the
// tape; its scores say nothing about any model.
func serve() (url string, stop func() error, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	srv := &http.Server{Handler: http.HandlerFunc(answer)}
	go srv.Serve(l)
	return "http://" + l.Addr().String() + "/v1", srv.Close, nil
}

// lengthen repeats the last reply of each trial on a tape, because an episode may take more steps
// than when the tape was recorded if the page has its own clock.
func lengthen(tape string) error {
	const most = 16 // more than a trial has steps
	data, err := os.ReadFile(tape)
	if err != nil {
		return err
	}
	last := map[string]object{}
	for line := range bytes.Lines(data) {
		var l object
		if err := json.Unmarshal(line, &l); err != nil {
			return fmt.Errorf("the tape: %w", err)
		}
		key := fmt.Sprint(l["benchmark"], l["task"], l["repeat"])
		if was := last[key]; was == nil || was["n"].(float64) < l["n"].(float64) {
			last[key] = l
		}
	}
	f, err := os.OpenFile(tape, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	enc := json.NewEncoder(f)
	for key, l := range last {
		for n := l["n"].(float64) + 1; n < most; n++ {
			l["n"], l["reply"].(object)["id"] = n, fmt.Sprintf("%v-%v", key, n)
			if err := enc.Encode(l); err != nil {
				return err
			}
		}
	}
	return f.Close()
}

var served atomic.Int64 // number of replies; gives each its own ID

type object = map[string]any

func answer(w http.ResponseWriter, r *http.Request) {
	var req struct {
		Model    string
		Messages []struct{ Content json.RawMessage }
	}
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil || len(req.Messages) == 0 {
		http.Error(w, `{"error":{"message":"not a chat completion request"}}`, http.StatusBadRequest)
		return
	}
	said := text(req.Messages[len(req.Messages)-1].Content)
	reply := "<think>\nThis looks like the one.\n</think>\n<action>\n" + choose(said) + "\n</action>"
	json.NewEncoder(w).Encode(object{
		"id": fmt.Sprintf("chatcmpl-night-%d", served.Add(1)), "object": "chat.completion", "created": 0,
		"model": req.Model,
		"choices": []object{{"index": 0, "finish_reason": "stop",
			"message": object{"role": "assistant", "content": reply}}},
		"usage": object{"prompt_tokens": len(said) / 4, "completion_tokens": len(reply) / 4,
			"total_tokens": (len(said) + len(reply)) / 4},
	})
}

func text(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	var parts []struct{ Text string }
	json.Unmarshal(raw, &parts)
	for _, p := range parts {
		s += p.Text
	}
	return s
}

var (
	element = regexp.MustCompile(`\[(\d+)\] (\w+) '([^']*)'`)
	quoted  = regexp.MustCompile(`"([^"]+)"`)
)

// choose picks an action. The same input gives the same action.
func choose(said string) string {
	_, goal, _ := strings.Cut(said, "## Goal:")
	goal, rest, _ := strings.Cut(goal, "# Observation")
	var named []string
	for _, m := range quoted.FindAllStringSubmatch(goal, -1) {
		named = append(named, m[1])
	}
	var can [][]string
	for _, m := range element.FindAllStringSubmatch(rest, -1) {
		switch m[2] {
		case "button", "link", "checkbox", "radio", "tab", "menuitem", "textbox", "option", "generic":
			can = append(can, m)
		}
	}
	for i := len(can) - 1; i >= 0; i-- {
		for _, n := range named {
			if strings.EqualFold(can[i][3], n) {
				return fmt.Sprintf("click('%s')", can[i][1])
			}
		}
	}
	if len(can) == 0 {
		return "mouse_click(80, 110)"
	}
	h := fnv.New32a()
	h.Write([]byte(said))
	m := can[int(h.Sum32())%len(can)]
	if m[2] == "textbox" && len(named) > 0 {
		return fmt.Sprintf("fill('%s', %q)", m[1], named[0])
	}
	return fmt.Sprintf("click('%s')", m[1])
}
