// Command demo-models is an OpenAI-compatible server with two scripted "models". The tape of `make
// demo` was recorded with them, not with any real model (scripts/record-demo). Their scores say
// nothing about any model; they show what a run, a comparison and a trajectory look like. In a
// browser they also play the known solutions and read the pages as they appear.
//
// "scripted-careful" looks around, plays the known solution of most tasks, checks its work and
// finishes. "scripted-hasty" does not look around, gives a wrong answer to some tasks
// (mistakes.yaml), makes a malformed call, and gives up once.
package main

import (
	_ "embed"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"

	"github.com/goccy/go-yaml"

	"github.com/evalrun/evalrun/benchmarks/tasks"
)

// A solution is the known solution of one stage, from a task file.
type solution struct {
	task, phrase string // phrase identifies the stage by its instruction
	files        bool
	script       string // in shell or Python
	code         string // content of solution.py
	answer       string
	moves        tasks.Oracle // actions in a browser
}

// A mistake is a model's behaviour instead of solving a task.
type mistake struct {
	Models  []string `yaml:"models"`
	Thought string   `yaml:"thought"`
	Script  string   `yaml:"script"`
	Answer  string   `yaml:"answer"`
	GiveUp  string   `yaml:"give_up"`
	Garbled bool     `yaml:"garbled"` // one malformed call, followed by the solution
	Actions []string `yaml:"actions"` // actions in a browser, instead of the solution's
}

//go:embed mistakes.yaml
var mistakesYAML []byte

func main() {
	file := flag.String("tasks", "benchmarks/quickstart/suite/tasks.yaml", "the tasks that are solved")
	addr := flag.String("addr", "127.0.0.1:0", "where to listen")
	address := flag.String("address-file", "", "where to write the base URL")
	flag.Parse()
	sols, err := load(*file)
	if err != nil {
		log.Fatal(err)
	}
	var mistakes map[string]mistake
	if err := yaml.Unmarshal(mistakesYAML, &mistakes); err != nil {
		log.Fatal(err)
	}
	l, err := net.Listen("tcp", *addr)
	if err != nil {
		log.Fatal(err)
	}
	url := "http://" + l.Addr().String() + "/v1"
	if *address != "" {
		if err := os.WriteFile(*address, []byte(url), 0o644); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(url)
	s := &server{solutions: sols, mistakes: mistakes, guides: map[string]*tasks.Guide{}}
	log.Fatal(http.Serve(l, http.HandlerFunc(s.serve)))
}

func load(name string) ([]solution, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	type Stage struct { // exported, because the decoder requires it of embedded types
		Instruction string `yaml:"instruction"`
		Oracle      any    `yaml:"oracle"`
		Answer      any    `yaml:"answer"`
		Files       any    `yaml:"files"`
	}
	var f struct {
		Tasks []struct {
			ID     string `yaml:"id"`
			Stage  `yaml:",inline"`
			Stages []Stage `yaml:"stages"`
		} `yaml:"tasks"`
	}
	if err := yaml.Unmarshal(b, &f); err != nil {
		return nil, err
	}
	var out []solution
	for _, t := range f.Tasks {
		stages := t.Stages
		if stages == nil {
			stages = []Stage{t.Stage}
		}
		for _, s := range stages {
			x := solution{task: t.ID, files: t.Files != nil}
			// for some browser tasks the page provides it
			if text := squeeze(s.Instruction); text != "" {
				x.phrase = text[:60]
			}
			switch o := s.Oracle.(type) {
			case string:
				x.script = o
			case map[string]any:
				x.code, _ = o["answer"].(string)
				x.moves = moves(o)
			}
			switch a := s.Answer.(type) {
			case []any:
				x.answer = fmt.Sprint(a[0])
			case nil:
			default:
				x.answer = fmt.Sprint(a)
			}
			out = append(out, x)
		}
	}
	return out, nil
}

// moves returns an oracle's actions in a browser.
func moves(o map[string]any) tasks.Oracle {
	out := tasks.Oracle{Take: map[string]string{}}
	list, _ := o["actions"].([]any)
	for _, a := range list {
		out.Actions = append(out.Actions, fmt.Sprint(a))
	}
	take, _ := o["take"].(map[string]any)
	for name, pattern := range take {
		out.Take[name] = fmt.Sprint(pattern)
	}
	return out
}

func squeeze(s string) string { return strings.Join(strings.Fields(s), " ") }

type server struct {
	solutions []solution
	mistakes  map[string]mistake

	mu sync.Mutex
	// per model and goal: what it has read so far, because later requests omit older pages
	guides map[string]*tasks.Guide
}

type request struct {
	Model    string `json:"model"`
	Messages []struct {
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
	} `json:"messages"`
}

func (s *server) serve(w http.ResponseWriter, r *http.Request) {
	var req request
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil || len(req.Messages) == 0 {
		http.Error(w, `{"error":{"message":"not a chat completion request"}}`, http.StatusBadRequest)
		return
	}
	goal, page, step, in := "", "", 0, 0
	for _, m := range req.Messages {
		in += len(m.Content)/4 + 4
		said := text(m.Content)
		if strings.Contains(said, "BEGIN accessibility tree") {
			page = said
		}
		switch m.Role {
		case "user":
			// a browser observation, which may have been shortened
			if !strings.HasPrefix(said, "What was done without you") {
				goal, step = said, 0
			}
		case "assistant":
			step++
		}
	}
	reply := s.reply(req.Model, goal, page, step)
	json.NewEncoder(w).Encode(reply.wire(req.Model, in))
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

// A turn is one reply: text and one call.
type turn struct{ words, tool, args string }

func call(words, tool string, args any) turn {
	b, err := json.Marshal(args)
	if err != nil {
		panic(err)
	}
	return turn{words, tool, string(b)}
}

// bash is a call of the shell, which takes one command at a time: several lines become a group.
func bash(words, command string) turn {
	if command = strings.TrimSpace(command); strings.Contains(command, "\n") {
		command = "{\n" + command + "\n}"
	}
	return call(words, "execute_bash", map[string]string{"command": command})
}

func finish(words, message string) turn {
	return call(words, "finish", map[string]string{"message": message})
}

func (s *server) reply(model, goal, page string, step int) turn {
	if page != "" {
		return s.browse(model, squeeze(goal), page, step)
	}
	for _, x := range s.solutions {
		if x.phrase != "" && strings.Contains(squeeze(goal), x.phrase) {
			turns := s.play(model, x)
			return turns[min(step, len(turns)-1)]
		}
	}
	return call("", "finish", map[string]any{"message": "I have no script for this task.", "gave_up": true})
}

// browse returns a model's next action in a browser. The page generates the goal from a seed, so
// the task is identified by how many of its patterns match.
func (s *server) browse(model, goal, page string, step int) turn {
	var x *solution
	most := 0
	for i := range s.solutions {
		n := 0
		for _, pattern := range s.solutions[i].moves.Take {
			if re, err := regexp.Compile(pattern); err == nil && re.MatchString(goal) {
				n++
			}
		}
		if n > most {
			x, most = &s.solutions[i], n
		}
	}
	if x == nil {
		return call("", "finish", map[string]any{"message": "I have no script for this page.", "gave_up": true})
	}
	words, actions := "", x.moves.Actions
	if m, ok := s.mistakes[x.task]; ok && contains(m.Models, model) {
		if m.GiveUp != "" {
			return call("", "finish", map[string]any{"message": m.GiveUp, "gave_up": true})
		}
		words, actions = m.Thought, m.Actions
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := model + " " + goal
	if s.guides[key] == nil || step == 0 {
		s.guides[key] = x.moves.Guide(goal)
	}
	g := s.guides[key]
	if err := g.See(page); err != nil {
		log.Fatal(err)
	}
	if step >= len(actions) {
		return finish("", "Done.")
	}
	code, err := g.Fill(actions[step])
	if err != nil {
		return call("", "finish", map[string]any{"message": err.Error(), "gave_up": true})
	}
	if step > 0 {
		words = ""
	}
	return call(words, "browser", map[string]string{"code": code})
}

// play returns all replies of a model for a task.
func (s *server) play(model string, x solution) []turn {
	var turns []turn
	careful := strings.HasSuffix(model, "careful")
	if m, ok := s.mistakes[x.task]; ok && contains(m.Models, model) {
		switch {
		case m.GiveUp != "":
			return []turn{bash("Let me see what there is.", "ls"),
				call("", "finish", map[string]any{"message": m.GiveUp, "gave_up": true})}
		case m.Garbled:
			turns = append(turns, turn{"I run it at once.", "execute_bash", `{"command": "python3 - <<'END'`})
		case m.Answer != "":
			return []turn{finish(m.Thought, m.Answer)}
		default:
			return []turn{bash(m.Thought, m.Script), finish("", "Done.")}
		}
	}
	if x.answer != "" {
		if careful {
			turns = append(turns, call("Let me think this through before I answer.", "execute_bash",
				map[string]string{"command": "python3 -c 'print(\"checking by hand\")'"}))
		}
		return append(turns, finish("", x.answer))
	}
	if careful && x.files {
		turns = append(turns, bash("I look at what is there first.",
			"find . -type f | LC_ALL=C sort | head -50; for f in $(find . -maxdepth 1 -type f | LC_ALL=C sort); do "+
				"echo \"== $f\"; head -n 12 \"$f\"; done"))
	}
	switch {
	case x.code != "":
		turns = append(turns, bash("I write the function.",
			"cat > solution.py <<'END_OF_SOLUTION'\n"+x.code+"END_OF_SOLUTION"))
		if careful {
			turns = append(turns, bash("Does it load?", "python3 -c 'import solution; print(\"loads\")'"))
		}
	case strings.HasPrefix(x.script, "#!/usr/bin/env python3"):
		turns = append(turns, bash("A short program does this.",
			"cat > /tmp/do.py <<'END_OF_PROGRAM'\n"+x.script+"END_OF_PROGRAM\npython3 /tmp/do.py"))
	default:
		turns = append(turns, bash("This can be done in the shell.", x.script))
	}
	if careful {
		turns = append(turns, bash("I check what has become of it.", "find . -type f | LC_ALL=C sort | head -20"))
	}
	return append(turns, finish("", "Done."))
}

func contains(models []string, model string) bool {
	for _, m := range models {
		if strings.HasSuffix(model, m) {
			return true
		}
	}
	return false
}

// wire encodes a turn as a chat completion. Token counts assume four bytes per token.
func (t turn) wire(model string, in int) any {
	type object = map[string]any
	return object{
		"id": "chatcmpl-scripted", "object": "chat.completion", "created": 0, "model": model,
		"choices": []object{{"index": 0, "finish_reason": "tool_calls", "message": object{
			"role": "assistant", "content": t.words,
			"tool_calls": []object{{"id": "call_1", "type": "function",
				"function": object{"name": t.tool, "arguments": t.args}}},
		}}},
		"usage": object{"prompt_tokens": in, "completion_tokens": (len(t.words)+len(t.args))/4 + 8,
			"total_tokens": in + (len(t.words)+len(t.args))/4 + 8},
	}
}
