package attack

import (
	"compress/gzip"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// one is a benchmark with a task that nop and oracle can play.
const one = `tasks:
  - {id: bystander, instruction: say yes, answer: yes}
`

func configRows() []row {
	conf := func(name, text string, exit int, said ...string) row {
		return row{group: "config", name: name, files: map[string]string{"c.yaml": text, "tasks.yaml": one},
			args: []string{"run", "c.yaml"}, exit: exit, said: said}
	}
	return []row{
		conf("unknown key", "benchmark: tasks:tasks.yaml\nagnet: oracle\n", 2, "c.yaml:2:1", "agnet", "agent"),
		conf("unknown key inside", "benchmark: tasks:tasks.yaml\nagent: oracle\nlimits: {tims: 5m}\n", 2, "c.yaml:3:",
			"tims", "time"),
		conf("bad type", "benchmark: tasks:tasks.yaml\nagent: oracle\nworkers: many\n", 2, "c.yaml:3:", "workers"),
		conf("bad duration and size", "benchmark: tasks:tasks.yaml\nagent: oracle\nlimits: {time: 5 parsecs, output: "+
			"3 elephants}\n", 2, "c.yaml:3:", "5 parsecs", "3 elephants"),
		conf("empty", "", 2, "c.yaml"),
		conf("not YAML", "a: [b\n", 2, "c.yaml:"),
		conf("duplicate arm names", "benchmark: tasks:tasks.yaml\narms:\n  - {name: a, agent: nop}\n  - {name: a, "+
			"agent: oracle}\n", 2, "c.yaml:4:", "a"),
		conf("unknown benchmark", "benchmark: quikstart\nagent: nop\n", 2, "c.yaml:1:", "quikstart", "quickstart"),
		conf("unknown agent", "benchmark: tasks:tasks.yaml\nagent: nopp\n", 2, "c.yaml:2:", "nopp"),
		conf("unknown driver", "benchmark: tasks:tasks.yaml\nagent: nop\nsandbox: {driver: docke}\n", 2, "c.yaml:3:",
			"docke"),
		conf("unknown model vendor", "benchmark: tasks:tasks.yaml\nagent: codeact\nmodel: opnai/x\n", 2, "c.yaml:3:",
			"opnai"),
		conf("no tasks selected", "benchmark: tasks:tasks.yaml\nagent: nop\nselect: {ids: ['z*']}\n", 2,
			"leaves none of its 1 tasks"),
		conf("impossible limits", "benchmark: tasks:tasks.yaml\nagent: nop\nlimits: {time: -5s, turns: -1, cost: -2}\n",
			2, "c.yaml:3:", "time", "turns", "cost"),
		conf("impossible memory", "benchmark: tasks:tasks.yaml\nagent: 'command:echo yes'\nsandbox: {memory: 900TB}\n",
			2, "sandbox.memory", "pools.memory"),
		conf("secret written out", "benchmark: tasks:tasks.yaml\nagent: codeact\nmodel: {name: openai/x, key: "+
			"sk-abcdef}\n", 2, "c.yaml:3:", "${"),
		conf("secret not set", "benchmark: tasks:tasks.yaml\nagent: codeact\nmodel: {name: openai/x, key: "+
			"'${NO_SUCH_KEY_HERE}'}\n", 2, "NO_SUCH_KEY_HERE"),
		conf("script with a mistake", "benchmark: tasks:tasks.yaml\nagent: script:tasks.yaml\n", 2, "tasks.yaml:1"),
		conf("all is well", "benchmark: tasks:tasks.yaml\nagent: oracle\n", 0),
		{group: "config", name: "missing file", args: []string{"run", "no-such.yaml"}, exit: 2,
			said: []string{"no-such.yaml"}},
		{group: "config", name: "unknown flag", args: []string{"run", "quickstart", "--agnet", "nop"}, exit: 2,
			said: []string{"agnet", "--agent"}},
		{group: "config", name: "unknown command", args: []string{"rnu"}, exit: 2, said: []string{"rnu", "run"}},
	}
}

const question = `{"id":"bystander","question":"6 times 7?","answer":"42"}` + "\n"

func dataRows() []row {
	data := func(name, file, text string, exit int, trials map[string]string, said ...string) row {
		return row{group: "data", name: name, files: map[string]string{file: text},
			args: []string{"run", "qa:" + file, "--agent", "oracle"},
			exit: exit, trials: trials, said: said}
	}
	well := map[string]string{"bystander": "scored answered 1"}
	return []row{
		{group: "data", name: "missing file", args: []string{"run", "qa:none.jsonl", "--agent", "oracle"}, exit: 2,
			said: []string{"none.jsonl"}},
		data("broken line", "q.jsonl", question+`{"id":"b","question":`+"\n", 0, well, "q.jsonl:2"),
		data("missing column", "q.jsonl", `{"id":"b","frage":"?","antwort":"!"}`+"\n", 2, nil, "q.jsonl", "question"),
		data("missing column in CSV", "q.csv", "id,frage\nb,?\n", 2, nil, "q.csv", "question"),
		data("duplicate ids", "q.jsonl", question+question, 2, nil, "q.jsonl:2", "bystander"),
		data("not UTF-8", "q.jsonl", question+"{\"id\":\"b\",\"question\":\"\xff\xfe?\",\"answer\":\"1\"}\n", 0, well,
			"q.jsonl:2", "UTF-8"),
		data("empty", "q.jsonl", "", 2, nil, "q.jsonl"),
		{group: "data", name: "gzip cut short", args: []string{"run", "qa:q.jsonl.gz", "--agent", "oracle"}, exit: 2,
			said: []string{"q.jsonl.gz"},
			prepare: func(t *testing.T, dir string) {
				var b strings.Builder
				z := gzip.NewWriter(&b)
				z.Write([]byte(strings.Repeat(question, 1000)))
				z.Close()
				write(t, dir, "q.jsonl.gz", b.String()[:b.Len()/2])
			}},
		{group: "data", name: "line of 100 MB", args: []string{"run", "qa:q.jsonl", "--agent", "oracle"}, exit: 0,
			trials: well, said: []string{"q.jsonl:2"},
			prepare: func(t *testing.T, dir string) {
				write(t, dir, "q.jsonl",
					question+`{"id":"b","question":"`+strings.Repeat("x", 100<<20)+`","answer":"1"}`+"\n")
			}},
	}
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
