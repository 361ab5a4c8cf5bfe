package terminalbench

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/evalrun/evalrun/benchmarks/harbor/compose"
	"github.com/evalrun/evalrun/internal/fsutil"
)

// A Task is a task folder as it was read, every default filled in. It is the Data of a
// datasets.Task.
type Task struct {
	ID          string `json:"id"` // the folder's name
	Instruction string `json:"instruction"`

	AuthorName  string   `json:"author_name"`
	AuthorEmail string   `json:"author_email"`
	Difficulty  string   `json:"difficulty"`
	Category    string   `json:"category"`
	Tags        []string `json:"tags,omitempty"`

	Parser      string        `json:"parser"`
	AgentTime   time.Duration `json:"agent_time"`
	TestTime    time.Duration `json:"test_time"`
	SameShell   bool          `json:"same_shell,omitempty"` // tests run as the agent's user, where the agent was
	NoRecording bool          `json:"no_recording,omitempty"`

	// Told, and without effect.
	Duration      float64  `json:"estimated_duration_sec,omitempty"`
	ExpertMinutes float64  `json:"expert_minutes,omitempty"`
	JuniorMinutes float64  `json:"junior_minutes,omitempty"`
	TestScripts   []string `json:"test_scripts"`       // run one after the other; usually run-tests.sh alone
	Solution      string   `json:"solution,omitempty"` // solution.sh, solution.yaml; "": there is no oracle
	// how often the test scripts themselves print pytest's headline
	SummaryHeaders int `json:"summary_headers,omitempty"`

	Project  *compose.Project `json:"project,omitempty"` // nil when it cannot be played here: Skip
	Skip     string           `json:"skip,omitempty"`
	Digest   string           `json:"digest"`
	Warnings []string         `json:"warnings,omitempty"`
}

// Defaults of task.yaml.
const (
	defaultAuthor    = "unknown"
	defaultCategory  = "software_engineering"
	defaultParser    = "pytest"
	defaultAgentTime = 360 * time.Second
	defaultTestTime  = 60 * time.Second
)

const (
	taskFile     = "task.yaml"
	composeFile  = "docker-compose.yaml"
	testScript   = "run-tests.sh"
	maxText      = 1 << 20
	testsDir     = "/tests"
	oracleDir    = "/oracle"
	logsDir      = "/logs"
	agentLogsDir = "/agent-logs"
)

// Load reads a task folder; id is its name. The error lists all that is wrong, with places; such a
// task cannot be played. What cannot be played here although nothing is wrong with it has a Skip.
// fsys must not lead out of the folder by links (os.Root's does not).
func Load(fsys fs.FS, id string) (*Task, error) {
	text, err := readText(fsys, taskFile)
	if err != nil {
		return nil, err
	}
	t, err := readYAML(text)
	if t == nil {
		return nil, err
	}
	l := &loader{fsys: fsys, t: t}
	l.add(err)
	t.ID = id
	if id == "" || strings.ContainsRune(id, 0) {
		l.add(fmt.Errorf("%q is no name of a task", id))
	}
	l.scripts()
	l.machines()
	switch {
	case l.isFile("solution.sh"):
		t.Solution = "solution.sh"
	case l.isFile("solution.yaml"):
		t.Solution = "solution.yaml"
	}
	if t.Digest, err = digest(fsys); err != nil {
		l.add(err)
	}
	if _, known := parsers[t.Parser]; !known && t.Skip == "" {
		t.Skip = unknownParser(t.Parser)
	}
	if len(l.errs) > 0 {
		return nil, errors.Join(l.errs...)
	}
	return t, nil
}

type loader struct {
	fsys fs.FS
	t    *Task
	errs []error
}

func (l *loader) add(err error) {
	if err != nil {
		l.errs = append(l.errs, err)
	}
}

func (l *loader) isFile(name string) bool {
	info, err := fs.Stat(l.fsys, name)
	return err == nil && info.Mode().IsRegular()
}

func (l *loader) isDir(name string) bool {
	info, err := fs.Stat(l.fsys, name)
	return err == nil && info.IsDir()
}

// scripts finds what grades the task.
func (l *loader) scripts() {
	t := l.t
	if len(t.TestScripts) == 0 {
		t.TestScripts = []string{testScript}
	}
	for _, name := range t.TestScripts {
		if !fs.ValidPath(name) || !l.isFile(name) {
			l.add(fmt.Errorf("%s is missing; it runs the tests", name))
			continue
		}
		text, err := readText(l.fsys, name)
		l.add(err)
		t.SummaryHeaders += len(headline.FindAll(text, -1))
	}
	if !l.isDir("tests") {
		l.t.Warnings = append(l.t.Warnings,
			"the folder tests is missing; only "+strings.Join(t.TestScripts, ", ")+" is there to grade with")
	}
}

// machines reads the compose file, or makes the usual one of a Dockerfile alone.
func (l *loader) machines() {
	options := compose.Options{
		Main: []string{"client"}, First: true, Vars: variables(l.t.ID),
		Folders: map[string]string{hostLogs: "logs", hostAgentLogs: "agent-logs"},
	}
	fsys := l.fsys
	if !l.isFile(composeFile) {
		if !l.isFile("Dockerfile") {
			l.add(fmt.Errorf("neither %s nor a Dockerfile: nothing says what the task runs in", composeFile))
			return
		}
		fsys = withDefaultCompose{l.fsys}
	}
	p, err := compose.Read(fsys, composeFile, options)
	switch {
	case compose.OnlyRefused(err):
		l.t.Skip = strings.ReplaceAll(err.Error(), "\n", "; ")
	case err != nil:
		l.add(err)
	default:
		l.t.Project = p
		l.t.Warnings = append(l.t.Warnings, p.Warnings...)
	}
}

// The usual compose file, for tasks that have none.
const defaultCompose = `services:
  client:
    build: {dockerfile: Dockerfile}
    environment: ["TEST_DIR=${T_BENCH_TEST_DIR}"]
    volumes:
      - ${T_BENCH_TASK_LOGS_PATH}:${T_BENCH_CONTAINER_LOGS_PATH}
      - ${T_BENCH_TASK_AGENT_LOGS_PATH}:${T_BENCH_CONTAINER_AGENT_LOGS_PATH}
`

// readText reads a regular file that is small enough to be read whole.
func readText(fsys fs.FS, name string) ([]byte, error) { return fsutil.ReadIn(fsys, name, maxText) }

func decode(raw json.RawMessage) (*Task, error) {
	var t Task
	if err := json.Unmarshal(raw, &t); err != nil {
		return nil, err
	}
	return &t, nil
}
