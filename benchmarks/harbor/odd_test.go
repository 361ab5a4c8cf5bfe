package harbor_test

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/benchmarks/benchtest"
	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// An odd task is made as Harbor's users make them and as its documents do not mention. Oracle and
// nop say what becomes of it.
type odd struct {
	name        string
	toml        string // in place of the usual one
	dockerfile  string // after FROM
	compose     string
	test, solve string
	files       map[string]string
	want        string // oracle / nop; "": 1 / 0
	opinion     string // on the oracle; "": confirmed
}

const (
	answered = `[ "$(cat answer.txt)" = right ]`
	answer   = "echo right > answer.txt\n"
	// account is an image that works as somebody.
	account = "RUN useradd -m agent && mkdir /app && chown agent /app\nUSER agent\nWORKDIR /app\n"
	// server is an image whose ENTRYPOINT serves what is asked for.
	server  = "WORKDIR /app\nENTRYPOINT [\"sh\", \"-c\", \"exec python3 -m http.server 8000\"]\n"
	reward  = "if " + answered + "; then echo 1; else echo 0; fi > /logs/verifier/reward.txt\n"
	offline = "[environment]\nnetwork_mode = \"no-network\"\n"
)

var oddities = []odd{
	{name: "an image with a USER", dockerfile: account, test: reward},
	{name: "an image with a USER by number",
		dockerfile: "RUN mkdir /app && chown 4321 /app\nUSER 4321:4322\nWORKDIR /app\n", test: reward},
	{name: "a compose file with a user",
		dockerfile: "RUN useradd -m agent && mkdir /app && chown agent /app\nWORKDIR /app\n",
		compose:    "services: {main: {build: {context: .}, user: agent}}\n", test: reward},
	{name: "an image with a USER, and a verifier that is root", toml: offline + "[verifier]\nuser = \"root\"\n",
		dockerfile: account, test: reward},
	{name: "a verifier that gives up being root", toml: offline + "[verifier]\nuser = \"root\"\n", dockerfile: account,
		test: "su agent -s /bin/bash -c " + quoted("cd /app; "+strings.TrimSpace(reward)) + "\n"},
	{name: "a separate verifier that gives up being root",
		toml:       "artifacts = [\"/app\"]\n" + offline + "[verifier]\nenvironment_mode = \"separate\"\nuser = 0\n",
		dockerfile: account,
		test:       "su agent -s /bin/bash -c " + quoted("cd /app; "+strings.TrimSpace(reward)) + "\n",
		files:      map[string]string{"tests/Dockerfile": "FROM " + image + "\n" + "COPY . /tests/\n" + account}},
	{name: "a separate verifier with a USER",
		toml:       "artifacts = [\"/app\"]\n" + offline + "[verifier]\nenvironment_mode = \"separate\"\n",
		dockerfile: account, test: reward,
		files: map[string]string{"tests/Dockerfile": "FROM " + image + "\n" + "COPY . /tests/\n" + account}},

	{name: "reward.json that says less than reward.txt", dockerfile: server,
		test: "if " + answered + `; then echo '{"reward": 1, "style": 0.5}'; else echo '{"reward": 0, "style": 0}'; fi > /logs/verifier/reward.json` + "\n" +
			"if " + answered + "; then echo 100; else echo 0; fi > /logs/verifier/reward.txt\n"},
	{name: "a reward that is moved into its place", dockerfile: server,
		test: "cd /tmp\nif [ \"$(cat /app/answer.txt)\" = right ]; then echo 1; else echo 0; fi > " +
			"/logs/verifier/new\nmv /logs/verifier/new /logs/verifier/reward.txt\n"},
	{name: "a reward in two pieces by one program", dockerfile: server,
		test: "{ if " + answered + "; then printf 1; else printf 0; fi; sleep 0.1; echo; } > " +
			"/logs/verifier/reward.txt\n"},

	{name: "scripts in Python", dockerfile: "WORKDIR /app\n", files: map[string]string{
		"tests/test.sh": "#!/usr/bin/env python3\nimport os\nok = " +
			"os.path.exists('answer.txt')\nopen('/logs/verifier/reward.txt', 'w').write(f'{float(ok)}\\n')\n",
		"solution/solve.sh": "#!/usr/bin/env python3\nopen('answer.txt', 'w').write('right')\n"}},
	{name: "line ends and marks of Windows", dockerfile: "WORKDIR /app\n",
		toml: "\ufeff" + strings.ReplaceAll(offline, "\n", "\r\n"), files: map[string]string{
			"instruction.md":    "\ufeffDo it.\r\n",
			"tests/test.sh":     "#!/bin/bash\r\n" + strings.ReplaceAll(reward, "\n", "\r\n"),
			"solution/solve.sh": "#!/bin/bash\r\necho right > answer.txt\r\n"}},
	{name: "scripts without a first line", dockerfile: "WORKDIR /app\n",
		files: map[string]string{"tests/test.sh": reward, "solution/solve.sh": answer}},
	{name: "tests that remove themselves and fail", dockerfile: "WORKDIR /app\n",
		test: reward + "rm -rf /tests\nexit 9\n"},
	{name: "tests that make their folder of logs anew", dockerfile: "WORKDIR /app\n",
		test: "rm -rf /logs/verifier; mkdir -p /logs/verifier\n" + reward},
	{name: "a solution that leaves a server", dockerfile: "WORKDIR /app\n", opinion: record.Inapplicable,
		solve: "(python3 -m http.server 8000 >/dev/null 2>&1 &)\nuntil python3 -c 'import socket; " +
			"socket.create_connection((\"localhost\", 8000))'; do sleep 0.1; done\n",
		test: "if [ \"$(python3 -c 'import urllib.request as u; " +
			"print(u.urlopen(\"http://localhost:8000/answer.txt\").read().decode().strip())')\" = right ]; then echo " +
			"1; else echo 0; fi > /logs/verifier/reward.txt\n"},
	{name: "an ENTRYPOINT that cannot run what it is given",
		dockerfile: "WORKDIR /app\nENTRYPOINT [\"python3\"]\nCMD [\"-m\", \"http.server\"]\n", test: reward},
	{name: "no working directory", test: reward}, // and no instruction that names paths
	{name: "an image with a USER and its group, and steps",
		toml: "multi_step_reward_strategy = \"final\"\n" + offline +
			"[[steps]]\nname = \"1. first step\"\nmin_reward = 1\n[[steps]]\nname = \"zwei-ü\"\n",
		dockerfile: "RUN groupadd team && useradd -m -g team bob && mkdir /app && chown bob:team /app\nUSER " +
			"bob:team\nWORKDIR /app\n", test: "[ -e note.txt ] && " + reward,
		files: map[string]string{"steps/1. first step/instruction.md": "one",
			"steps/1. first step/workdir/setup.sh": "echo hi > note.txt\n", "steps/zwei-ü/instruction.md": "two"},
		want: "1 1 / 0"},

	// What these verifiers do, a process beside them could do as well (each is a row of the
	// attacks), and by looking at places it cannot be told who did it.
	{name: "a reward of 0 that is written first", dockerfile: server,
		test: "echo 0 > /logs/verifier/reward.txt\n" + answered + " && echo 1 > /logs/verifier/reward.txt\n",
		want: "1 rewritten_reward / 0"},
	{name: "a reward in two writes", dockerfile: server,
		test: "if " + answered + "; then printf 1; else printf 0; fi > /logs/verifier/reward.txt\necho >> " +
			"/logs/verifier/reward.txt\n",
		want: "1 rewritten_reward / 0 rewritten_reward"},
	{name: "reward.json that says more than reward.txt", dockerfile: server,
		test: "if " + answered + `; then echo '{"reward": 1}'; else echo '{"reward": 0}'; fi > /logs/verifier/reward.json; echo 0 > /logs/verifier/reward.txt` + "\n", want: "1 rewritten_reward / 0"},
	{name: "tests that make modules", dockerfile: server,
		test: "echo 'def right(x): return x == \"right\"' > /tests/made.py\nif python3 -c 'import sys; " +
			"sys.path.insert(0, \"/tests\"); import made; sys.exit(not " +
			"made.right(open(\"answer.txt\").read().strip()))'; then echo 1; else echo 0; fi > " +
			"/logs/verifier/reward.txt\n",
		want: "1 tampered_tests / 0 tampered_tests"},
	// Where nobody is beside the verifier, nothing of this is odd.
	{name: "all of this without a server", dockerfile: "WORKDIR /app\n",
		test: "echo 0 > /logs/verifier/reward.txt; echo 'x = 1' > /tests/made.py\n" + answered +
			` && { printf 1 > /logs/verifier/reward.txt; echo >> /logs/verifier/reward.txt; echo '{"reward": 1, "style": 2}' > /logs/verifier/reward.json; }` + "\n"},

	{name: "a VOLUME on /tests", dockerfile: "VOLUME /tests\nWORKDIR /app\n", test: reward},
	{name: "a VOLUME on /logs", dockerfile: "VOLUME /logs\nWORKDIR /app\n", test: reward},
	{name: "a VOLUME on /logs/verifier",
		dockerfile: "VOLUME [\"/logs/verifier\", \"/logs/agent\", \"/logs/artifacts\"]\nWORKDIR /app\n", test: reward},
	{name: "a tmpfs on /logs and /tests", dockerfile: "WORKDIR /app\n",
		compose: "services: {main: {build: {context: .}, tmpfs: [/logs, /tests]}}\n", test: reward},
	{name: "a named volume on /logs/verifier", dockerfile: "WORKDIR /app\n",
		compose: "services: {main: {build: {context: .}, volumes: [\"v:/logs/verifier\"]}}\nvolumes: {v: {}}\n",
		test:    reward},
}

func (o odd) folder() folder {
	f := folder{
		"t/tests/test.sh": "#!/bin/bash\n" + o.test, "t/solution/solve.sh": "#!/bin/bash\n" + answer + o.solve,
		"t/environment/Dockerfile": "FROM " + image + "\n" + o.dockerfile, "t/task.toml": offline,
	}
	if o.toml != "" {
		f["t/task.toml"] = o.toml
	}
	if o.compose != "" {
		f["t/environment/docker-compose.yaml"] = o.compose
	}
	for name, text := range o.files {
		f["t/"+name] = text
	}
	return maps.Clone(f)
}

// nop does nothing.
var nop = agent.Func(func(context.Context, *agent.Session) (agent.Answer, error) { return agent.Answer{}, nil })

func TestOddities(t *testing.T) {
	d := inDocker(t)
	for _, o := range oddities {
		t.Run(strings.ReplaceAll(o.name, "/", "∕"), func(t *testing.T) {
			t.Parallel()
			b := open(t, o.folder(), "")
			x := task(t, b, "")
			oracle, err := b.Solve(x)
			if err != nil {
				t.Fatal(err)
			}
			var said, why []string
			for _, a := range []agent.Agent{oracle, nop} {
				session := benchtest.Session{Benchmark: b, Driver: d, Task: x, Agent: a, Oracle: len(said) == 0}
				p, err := benchtest.Play(t.Context(), session)
				if err != nil {
					t.Fatal(err)
				}
				if session.Oracle {
					opinion := cmp.Or(o.opinion, record.Confirmed)
					if c, err := p.Confirm(t.Context(), session); err != nil {
						t.Error(err)
					} else if c != nil && c.State != opinion {
						t.Errorf("the second opinion is %s, want %s: %s", c.State, opinion, c.Why)
					}
				}
				for _, s := range p.Strays {
					t.Error(s)
				}
				var steps []string
				for _, r := range p.Results {
					steps = append(steps, say(r))
					why = append(why, r.Primary().Why)
				}
				said = append(said, strings.Join(steps, " "))
			}
			want := o.want
			if want == "" {
				want = "1 / 0"
			}
			if got := strings.Join(said, " / "); got != want {
				t.Errorf("%s, want %s: %q", got, want, why)
			}
		})
	}
}

// What a task asks for and no machine can do is the task's fault, says whose check or file it is,
// and is not tried again.
func TestTaskAtFault(t *testing.T) {
	d := inDocker(t)
	const slow = "HEALTHCHECK --interval=10ms --timeout=20s --retries=2 CMD "
	for name, o := range map[string]struct {
		odd
		want []string
	}{
		"HEALTHCHECK of the image": {odd{dockerfile: slow + "echo nobody listens; exit 3\n"},
			[]string{"the agent's machine: HealthcheckError: the HEALTHCHECK of its image: not healthy after 2 " +
				"checks (echo nobody listens; exit 3): the check ended with code 3: nobody listens"}},
		"HEALTHCHECK without a shell": {odd{dockerfile: slow + "[\"false\", \"--really\"]\n"},
			[]string{"the HEALTHCHECK of its image: not healthy after 2 checks (false --really)"}},
		"healthcheck of task.toml": {odd{toml: offline +
			"[environment.healthcheck]\ncommand = \"echo no; exit 4\"\ninterval_sec = 0.01\nretries = 2\n"},
			[]string{"environment.healthcheck: HealthcheckError: not healthy after 2 checks (echo no; exit 4): the " +
				"check ended with code 4: no"}},
		"healthcheck of a service": {odd{compose: "services:\n  main: {build: {context: .}}\n  db: {image: \"" + image +
			"\", command: [sleep, \"1000\"], healthcheck: {test: [CMD, cat, /ready], interval: 10ms, timeout: 20s, " +
			"retries: 2}}\n"},
			[]string{"HealthcheckError: service db: ", "its health check: not healthy after ",
				" (cat /ready): the check ended with code 1: cat: /ready: No such file or directory"}},
		"a service that ends": {odd{compose: "services:\n  main: {build: {context: .}}\n  db: {image: \"" + image +
			"\", command: [sh, -c, \"echo no data; exit 5\"], healthcheck: {test: [CMD, cat, /ready], " +
			"interval: 100s}}\n"},
			[]string{"HealthcheckError: service db: ",
				"it ended with code 5; its last word: no data (its health check: not healthy after 1 check " +
					"(cat /ready)"}},
		"healthcheck of the separate verifier": {
			odd{toml: "artifacts = [\"/app\"]\n" + offline +
				"[verifier]\nenvironment_mode = \"separate\"\n[verifier.environment]\nnetwork_mode = " +
				"\"no-network\"\n[verifier.environment.healthcheck]\ncommand = \"exit 6\"\ninterval_sec = " +
				"0.01\nretries = 2\n",
				files: map[string]string{"tests/Dockerfile": "FROM " + image + "\nCOPY . /tests/\n"}},
			[]string{"verifier.environment.healthcheck: HealthcheckError: not healthy after 2 checks (exit 6)"}},
		"a USER that the image does not have": {odd{dockerfile: "USER ghost\n"},
			[]string{"no user \"ghost\" in /etc/passwd"}},
		"an agent.user that the image does not have": {odd{toml: offline + "[agent]\nuser = \"ghost\"\n"},
			[]string{"agent.user: ", "no user \"ghost\" in /etc/passwd"}},
		"a COPY of what is not there": {odd{dockerfile: "COPY missing.py /app/\n"},
			[]string{"missing.py", "building t"}},
		"a COPY that .dockerignore leaves nothing to": {
			odd{dockerfile: "COPY data /app/\n",
				files: map[string]string{"environment/data": "x", "environment/.dockerignore": "data\n"}},
			[]string{"data", "building t"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o.test = "true\n"
			b := open(t, o.folder(), "")
			_, err := benchtest.Play(t.Context(),
				benchtest.Session{Benchmark: b, Driver: d, Task: task(t, b, ""), Agent: nop})
			var sb *sandbox.Error
			if !errors.As(err, &sb) || !sb.BadRequest && !sb.Inside || !sb.Permanent {
				t.Fatalf("%v: %+v", err, sb)
			}
			for _, w := range o.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%v; want %q in it", err, w)
				}
			}
		})
	}
}
