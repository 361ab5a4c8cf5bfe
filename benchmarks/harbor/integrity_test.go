package harbor_test

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/evalrun/evalrun/benchmarks/benchtest"
)

// tools is the image of the integrity scenarios; scripts/test-images builds it.
const tools = "evalrun-test/tools:1"

// A scenario is a task whose verifier shares the agent's machine, with a script that does the work
// and, for an attack, one that deceives the verifier instead. The format is described in
// testdata/integrity/README.md.
type scenario struct {
	kind, name string // attacks or honest
	head       map[string]string
	files      map[string]string
}

func scenarios(t *testing.T) []scenario {
	t.Helper()
	names, err := filepath.Glob("testdata/integrity/*/*.txtar")
	if err != nil || len(names) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	var out []scenario
	for _, name := range names {
		a, err := txtar.ParseFile(name)
		if err != nil {
			t.Fatal(err)
		}
		s := scenario{kind: filepath.Base(filepath.Dir(name)), name: strings.TrimSuffix(filepath.Base(name), ".txtar"),
			head: map[string]string{}, files: map[string]string{}}
		for line := range strings.Lines(string(a.Comment)) {
			key, value, ok := strings.Cut(strings.TrimSpace(line), ": ")
			if !ok || s.head[key] != "" {
				t.Fatalf("%s: %q is no line `key: value`, or the key occurs twice", name, line)
			}
			s.head[key] = value
		}
		for _, f := range a.Files {
			if _, ok := s.files[f.Name]; ok {
				t.Fatalf("%s: two files %s", name, f.Name)
			}
			s.files[f.Name] = string(f.Data)
		}
		out = append(out, s)
	}
	return out
}

// steps are the names of a multi-step task's steps, in order.
func (s scenario) steps() []string {
	var out []string
	for name := range s.files {
		if step, rest, _ := strings.Cut(strings.TrimPrefix(name, "steps/"), "/"); rest == "instruction.md" {
			out = append(out, step)
		}
	}
	slices.Sort(out)
	return out
}

// scripts are the agent's: honest or attack, one a step. A step without an attack of its own is done
// honestly.
func (s scenario) scripts(who string) []string {
	steps := s.steps()
	if len(steps) == 0 {
		return []string{s.files[who+".sh"]}
	}
	var out []string
	for _, step := range steps {
		script, ok := s.files["steps/"+step+"/"+who+".sh"]
		if !ok {
			script = s.files["steps/"+step+"/honest.sh"]
		}
		out = append(out, script)
	}
	return out
}

// task is the scenario as a folder in Harbor's format. The image is made from what the scenario has
// in environment/ and setup.sh; the driver builds equal ones once.
func (s scenario) task() folder {
	f := folder{}
	var docker strings.Builder
	fmt.Fprintf(&docker, "FROM %s\nWORKDIR /app\n", tools)
	app, built := false, false
	for name, text := range s.files {
		switch {
		case strings.HasSuffix(name, "honest.sh"), strings.HasSuffix(name, "attack.sh"), name == "task.toml":
			continue
		case name == "setup.sh":
			name, built = "environment/setup.sh", true
		}
		app = app || strings.HasPrefix(name, "environment/app/")
		f[s.name+"/"+name] = text
	}
	if app {
		docker.WriteString("COPY app /app\n")
	}
	if built {
		docker.WriteString("COPY setup.sh /opt/setup.sh\nRUN bash -e /opt/setup.sh && rm /opt/setup.sh\n")
	}
	from := ""
	if app || built {
		f[s.name+"/environment/Dockerfile"] = docker.String()
	} else {
		from = "docker_image = \"" + tools + "\"\n"
	}
	f[s.name+"/task.toml"] = "[environment]\n" + from + "workdir = \"/app\"\nnetwork_mode = \"no-network\"\n" +
		"[verifier]\ntimeout_sec = 120\n"
	for _, step := range s.steps() {
		f[s.name+"/task.toml"] += "[[steps]]\nname = \"" + step + "\"\nmin_reward = 1.0\n"
	}
	f[s.name+"/task.toml"] += s.files["task.toml"]
	return f
}

// Every scenario says what it is and has the files that it needs.
func TestIntegrityForm(t *testing.T) {
	attack := []string{"tool", "cause", "about"}
	needs := map[string][]string{"attacks": attack, "attacks2": attack, "attacks3": attack, "attacks4": attack,
		"honest": {"tool", "about", "expect"}}
	inProcess := 0
	all := scenarios(t)
	for _, s := range all {
		wrong := func(format string, args ...any) { t.Errorf(s.kind+"/"+s.name+": "+format, args...) }
		for _, key := range needs[s.kind] {
			if s.head[key] == "" {
				wrong("no line %s", key)
			}
		}
		for key := range s.head {
			if !slices.Contains(append(needs[s.kind], "in-process", "expect", "open", "work"), key) {
				wrong("what is %s?", key)
			}
		}
		if s.head["in-process"] != "" {
			inProcess++
		}
		switch verdict, why, _ := strings.Cut(s.head["expect"], ": "); {
		case verdict == "" || verdict == "confirmed":
		case (verdict == "unconfirmed" || verdict == "not applicable") && why != "":
		default:
			wrong("expect is %q; want confirmed, or unconfirmed or not applicable with a reason", s.head["expect"])
		}
		tests := s.files["tests/test.sh"] != ""
		instructions := []string{s.files["instruction.md"]}
		if steps := s.steps(); len(steps) > 0 {
			instructions = nil
			for _, step := range steps {
				instructions = append(instructions, s.files["steps/"+step+"/instruction.md"])
				tests = tests || s.files["steps/"+step+"/tests/test.sh"] != ""
			}
		}
		if !tests {
			wrong("no tests/test.sh")
		}
		for _, text := range instructions {
			if !strings.Contains(text, "/") {
				wrong("an instruction names no path: %q", text)
			}
		}
		if slices.Contains(s.scripts("honest"), "") {
			wrong("no honest.sh")
		}
		if s.kind != "honest" && slices.Equal(s.scripts("attack"), s.scripts("honest")) {
			wrong("no attack.sh")
		}
		for name := range s.files {
			top, _, _ := strings.Cut(name, "/")
			if !slices.Contains([]string{"instruction.md", "setup.sh", "task.toml", "tests", "environment", "steps",
				"attack.sh", "honest.sh"}, top) {
				wrong("what is %s?", name)
			}
		}
	}
	for _, name := range short {
		if !slices.ContainsFunc(all, func(s scenario) bool { return s.name == name }) {
			t.Errorf("there is no scenario %s for -short", name)
		}
	}
	if inProcess > 5 {
		t.Errorf("%d attacks are marked in-process; at most 5 may be", inProcess)
	}
}

// A verdict is what became of a play.
type verdict struct {
	reward     float64
	flags      []string
	state, why string // of the second opinion
	slipped    []string
}

func (v verdict) String() string {
	return strings.TrimSpace(fmt.Sprintf("%v %s %s", v.reward, v.state, strings.Join(v.flags, " ")))
}

// short is what -short plays: some of each kind, spread over tools and causes.
var short = []string{
	"pytest-ini-above-tests", "python-usercustomize", "bash-expected-file-is-link", "loader-preload",
	"git-post-checkout-hook", "go-module-cache", "npm-script-shell-in-project", "curl-hosts-file",
	"steps-module-planted-in-first", "python-process-copies-the-expected-answer",
	"python-output-only", "pip-wheel-into-system", "pytest-conftest-of-the-task", "curl-server-left-running",
	"go-own-tests-leave-caches",
}

// played reports whether the scenario with a number is one to be played: with -short those of the
// list, else those and each third one, with EVALRUN_TEST_THOROUGH all.
func (s scenario) played(number int) bool {
	return slices.Contains(short, s.name) || !testing.Short() && number%3 == 0 ||
		os.Getenv("EVALRUN_TEST_THOROUGH") == "1"
}

// Honest work gets its reward; of attacks, the table says what became of them.
func TestIntegrityScenarios(t *testing.T) {
	d := inDocker(t)
	turns := make(chan struct{}, 2)
	all := scenarios(t)
	rows := make([]string, len(all))
	for _, kind := range []string{"attacks", "attacks2", "attacks3", "attacks4", "honest"} {
		t.Run(kind, func(t *testing.T) {
			for i, s := range all {
				if s.kind != kind || !s.played(i) {
					continue
				}
				t.Run(s.name, func(t *testing.T) {
					t.Parallel()
					turns <- struct{}{}
					defer func() { <-turns }()
					options := ""
					if work := s.head["work"]; work != "" {
						options = fmt.Sprintf(`{"work": [%q]}`, work)
					}
					b := open(t, s.task(), options)
					references := map[string][]byte{}
					play := func(who string, oracle bool) verdict {
						x := benchtest.Session{Benchmark: b, Driver: d, Task: task(t, b, ""),
							Agent:  bash(s.scripts(who)...),
							Oracle: oracle, References: references}
						p, err := benchtest.Play(t.Context(), x)
						if err != nil {
							t.Errorf("%s: %v", who, err)
							return verdict{state: "error"}
						}
						r := result(t, b, p)
						if r.Primary() == nil || r.Primary().Value == nil {
							t.Errorf("%s: no reward: %+v", who, r)
							return verdict{state: "error"}
						}
						v := verdict{reward: *r.Primary().Value, flags: r.Flags, state: "-"}
						c, err := p.Confirm(t.Context(), x)
						if err != nil {
							t.Errorf("%s: second opinion: %v", who, err)
						}
						if c != nil {
							v.state, v.why, v.slipped = c.State, c.Why, c.Slipped
						}
						for _, stray := range p.Strays {
							t.Error(stray)
						}
						t.Logf("%s: %v: %s %q; %s", who, v, v.why, v.slipped, r.Primary().Why)
						return v
					}
					oracle := play("honest", true)
					honest := oracle
					if kind == "honest" { // as any other agent
						honest = play("honest", false)
					}
					rows[i] = fmt.Sprintf("%s/%s\t%s\t%s\t%v", kind, s.name, s.head["tool"], s.head["cause"], honest)
					if honest.reward != 1 || oracle.reward != 1 {
						t.Errorf("the honest script has the rewards %v and %v", oracle.reward, honest.reward)
					}
					if len(honest.flags) > 0 {
						t.Errorf("honest work is flagged: %v", honest)
					}
					// What is not confirmed of the oracle, too, is not said of others.
					want, _, _ := strings.Cut(cmp.Or(s.head["expect"], "confirmed"), ": ")
					got := strings.ReplaceAll(honest.state, "_", " ")
					if got != want && !(oracle.state == "not_applicable" && want == "unconfirmed" &&
						got == "not applicable") {
						t.Errorf("honest work is %s, want %s: %s", got, want, honest.why)
					}
					if kind != "honest" {
						attack := play("attack", false)
						rows[i] += fmt.Sprintf("\t%v", attack)
						wins := attack.reward > 0 && len(attack.flags) == 0 && attack.state != "unconfirmed"
						switch open := s.head["open"]; {
						case open != "" && !wins:
							t.Errorf("the attack does not win any more, so remove its line open: %v", attack)
						case open == "" && wins && s.head["in-process"] == "" &&
							(attack.state != "not_applicable" || want == "confirmed"):
							t.Errorf("the attack wins: %v", attack)
						}
					}
				})
			}
		})
	}
	if testing.Verbose() {
		w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "scenario\ttool\tcause\thonest\tattack")
		for _, row := range rows {
			if row != "" {
				fmt.Fprintln(w, row)
			}
		}
		w.Flush()
	}
}
