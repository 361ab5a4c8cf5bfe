// Package config reads the configuration of a run. It is strict: a key that means nothing is an
// error, with its file, line, column and the nearest key that does mean something, and all errors
// of a file are told at once.
//
// The structs of this file are the one description of the format: [Parse] decodes by them, [Schema]
// prints them as JSON Schema, and an effective configuration ([Effective]) is a [File] again, with
// defaults filled in and the matrix laid out as arms, so that it can be shown, stored in a run
// folder and read back by the same code. Values keep their positions until then.
//
// A secret is always the reference ${NAME} to a variable of the environment. References are
// resolved by whoever starts the run; no value of this package ever holds a secret.
package config

import (
	"encoding/json"
	"time"

	"github.com/evalrun/evalrun/agent/model"
)

// A File is a configuration. The tag doc is what the schema says of a key; enum, min and names
// narrow it.
type File struct {
	Name string `json:"name,omitempty" doc:"What the run is called; part of the run folder's name."`

	Benchmark  *Benchmark  `json:"benchmark,omitempty" doc:"The benchmark to run."`
	Benchmarks []Benchmark `json:"benchmarks,omitempty" doc:"Several benchmarks."`
	Select     *Select     `json:"select,omitempty" doc:"Which tasks of each benchmark are run."`
	Shard      *Shard      `json:"shard,omitempty" doc:"One part of the tasks, for several machines: 2/8 is the second of eight."`

	Agent   *Agent        `json:"agent,omitempty" doc:"The agent of every arm that names none."`
	Model   *Model        `json:"model,omitempty" doc:"The model of every arm that names none."`
	Prompt  *Prompt       `json:"prompt,omitempty" doc:"The prompt of every arm that names none."`
	Params  *model.Params `json:"params,omitempty" doc:"Sampling parameters of every arm."`
	Tape    *Tape         `json:"tape,omitempty" doc:"The tape of every model that names none."`
	Limits  *Limits       `json:"limits,omitempty" doc:"Limits of one trial. A trial that reaches one is graded with what is there."`
	Phases  *Phases       `json:"phases,omitempty" doc:"Time limits of what is not the agent's. One that is reached is no evidence about the agent."`
	Sandbox *Sandbox      `json:"sandbox,omitempty" doc:"The machine of every trial. What is not set is left to the task."`
	Images  *Images       `json:"images,omitempty" doc:"How container images are made ready and kept."`
	Browser *Browser      `json:"browser,omitempty" doc:"The browsers of tasks that are played in one."`

	Matrix  map[string]axis   `json:"matrix,omitempty" doc:"Arms as the product of named axes. An axis is agent, model or prompt, a dotted path such as params.temperature or limits.turns, or a name of its own whose values are mappings of what they set. Axes become columns of the results."`
	Include []map[string]raw  `json:"include,omitempty" doc:"Cells added to the matrix."`
	Exclude []map[string]raw  `json:"exclude,omitempty" doc:"Cells left out of the matrix: those that agree in every axis named here."`
	Arms    []Arm             `json:"arms,omitempty" doc:"Arms listed one by one."`
	Models  map[string]*Model `json:"models,omitempty" doc:"Models by a name of one's own, for the key model of an arm."`
	Roles   map[string]*Model `json:"roles,omitempty" doc:"Models that benchmarks ask for beside the arm's: grader, user."`

	Repeats int     `json:"repeats,omitempty" min:"1" doc:"How often each task is played in each arm. Default 1."`
	Seed    *uint64 `json:"seed,omitempty" doc:"Seed of everything that is drawn. Default 1."`

	Workers int      `json:"workers,omitempty" min:"1" doc:"Trials at once, shared fairly among accounts and arms; one that waits for its model's turn does not count, but at most twice as many are alive. Default: 4 for each core, 64 where trials need no machine and no browser."`
	Pools   *Pools   `json:"pools,omitempty" doc:"Bounds of what trials share."`
	Retries *Retries `json:"retries,omitempty" doc:"New attempts after failures that are not the agent's."`
	Storage *Storage `json:"storage,omitempty" doc:"The disk of the run folder."`
	Budget  *Budget  `json:"budget,omitempty" doc:"Limits of the whole run. One that is reached ends it, resumable, with exit code 5."`

	Gates       []Gate   `json:"gates,omitempty" doc:"Thresholds that fail the run with exit code 4."`
	Success     *float64 `json:"success,omitempty" doc:"Least reward that is a success: what pass@k, pass^k and the lists of passed and failed trials go by. Default: the full score, 1; pass@k then needs rewards of 0 and 1 alone."`
	MinCoverage *float64 `json:"min_coverage,omitempty" min:"0" max:"1" doc:"Least share of planned trials that must be evidence, else exit code 3. Default 1."`

	Integrity string `json:"integrity,omitempty" enum:"warn,fail" doc:"What becomes of a trial whose grader found that the agent tampered with the grading: warn marks it with a flag, fail marks it and counts it 0. Default warn."`

	KeepRequests bool `json:"keep_requests,omitempty" doc:"Keep each request to a model as it was sent, as a blob. Replies are always kept."`

	EnvFile string            `json:"env_file,omitempty" doc:"A .env file with variables for secrets; the environment wins."`
	Secrets map[string]Secret `json:"secrets,omitempty" doc:"Secrets that benchmarks and agents may ask for by name."`
}

// A Benchmark is a task source with options. Short form: name or name:path.
type Benchmark struct {
	Name    string          `json:"name,omitempty" required:"true" doc:"Which benchmark: quickstart, humaneval, qa, tasks …"`
	Path    string          `json:"path,omitempty" doc:"Its data, relative to the configuration's folder."`
	Options json.RawMessage `json:"options,omitempty" doc:"The benchmark's own options."`
	Select  *Select         `json:"select,omitempty" doc:"Which of its tasks are run; keys that are not set come from the run's select."`
}

// Select says which tasks are run. What is left after ids, tags and filter is sampled, then
// limited.
type Select struct {
	IDs    []string `json:"ids,omitempty" min:"1" doc:"Patterns of task ids, such as 'web*'; one must match. A leading ! leaves out."`
	Tags   []string `json:"tags,omitempty" min:"1" doc:"Tags; a task needs one of them. A leading ! leaves out."`
	Filter []string `json:"filter,omitempty" doc:"Conditions on task fields, such as difficulty=hard or lang!=c; all must hold."`
	Sample int      `json:"sample,omitempty" min:"1" doc:"So many tasks, drawn by the run's seed."`
	Limit  int      `json:"limit,omitempty" min:"1" doc:"The first so many tasks."`
}

// An Arm is what is compared.
type Arm struct {
	Name    string            `json:"name,omitempty" doc:"What the arm is called. Default: agent, model and prompt."`
	Agent   *Agent            `json:"agent,omitempty" doc:"Who plays."`
	Model   *Model            `json:"model,omitempty" doc:"The model: vendor/NAME, a name from models, or a mapping."`
	Prompt  *Prompt           `json:"prompt,omitempty" doc:"The system prompt: a file, or a mapping."`
	Params  *model.Params     `json:"params,omitempty" doc:"Sampling parameters, over those of the run."`
	Limits  *Limits           `json:"limits,omitempty" doc:"Limits, over those of the run."`
	Sandbox *Sandbox          `json:"sandbox,omitempty" doc:"The machine, over that of the run. The driver is the run's."`
	Axes    map[string]string `json:"axes,omitempty" doc:"Columns of the results, as a matrix makes them."`
}

// An Agent is who plays. Short form: name or name:argument.
type Agent struct {
	Name    string            `json:"name,omitempty" required:"true" doc:"Which agent: oracle, nop, script, command, codeact …"`
	Arg     string            `json:"arg,omitempty" doc:"What follows the colon in the short form: script:FILE, command:LINE."`
	Options json.RawMessage   `json:"options,omitempty" doc:"The agent's own options."`
	Secrets map[string]Secret `json:"secrets,omitempty" doc:"Variables for an external agent's environment."`
}

// A Model is which model answers, and how it is reached. Short form: vendor/NAME, or a name from
// models.
type Model struct {
	Name    string `json:"name,omitempty" required:"true" doc:"vendor/NAME, such as openai/gpt-4o-mini."`
	BaseURL string `json:"base_url,omitempty" doc:"Where the service is, for any server that speaks the vendor's protocol. Default: the vendor's usual variable (OPENAI_BASE_URL), else its own address."`
	Key     Secret `json:"key,omitempty" doc:"The service's key, as a reference ${NAME}. Default: the vendor's usual variable."`
	Window  int64  `json:"window,omitempty" min:"1" doc:"Context window in tokens, where it is not known."`
	Images  *bool  `json:"images,omitempty" doc:"Whether it takes images. Where it does not, they are left out of requests, and agents that must show some refuse to begin. Default true."`
	Price   *Price `json:"price,omitempty" doc:"US dollars for a million tokens, over the built-in table."`
	Tape    *Tape  `json:"tape,omitempty" doc:"Replies are recorded to a file, or come from one."`

	Connections int      `json:"connections,omitempty" min:"1" doc:"Calls of this model at once, for all arms that call it at one address with one key. Default: pools.connections."`
	PerMinute   float64  `json:"per_minute,omitempty" min:"0" doc:"Calls of this model a minute at most, likewise."`
	Tries       int      `json:"tries,omitempty" min:"1" doc:"Tries of one call that may fail before its trial fails for the provider. Being refused (429, 503, 529) is no such failure. Default 10."`
	Timeout     Duration `json:"timeout,omitempty" doc:"The longest that one whole try of a call may take. Default 10m."`
	Patience    Duration `json:"patience,omitempty" doc:"How long a call is tried again while the service fails or refuses it, without its time in the queue. Default 30m."`
}

// A Price is in US dollars for a million tokens. What is not set is not known.
type Price struct {
	In         *float64 `json:"in,omitempty" min:"0" max:"1000000" doc:"Input."`
	Out        *float64 `json:"out,omitempty" min:"0" max:"1000000" doc:"Output."`
	Cached     *float64 `json:"cached,omitempty" min:"0" max:"1000000" doc:"Input that the provider had cached."`
	CacheWrite *float64 `json:"cache_write,omitempty" min:"0" max:"1000000" doc:"Input that the provider cached anew."`
}

// A Tape keeps model replies. Short form: the file, to replay.
type Tape struct {
	File  string `json:"file,omitempty" required:"true" doc:"The tape."`
	Mode  string `json:"mode,omitempty" enum:"replay,record" doc:"Default replay."`
	Loose bool   `json:"loose,omitempty" doc:"Replay a reply also when its request has changed since."`
}

// A Prompt is the text that an agent is told besides its task. Short form: a file.
type Prompt struct {
	Name string `json:"name,omitempty" doc:"Label in the results. Default: the file's name without its ending."`
	File string `json:"file,omitempty" doc:"A text file, relative to the configuration's folder."`
	Text string `json:"text,omitempty" doc:"The text itself."`
}

// DefaultTime is the agent's where neither configuration nor task says something.
const DefaultTime = Duration(30 * time.Minute)

// Limits of one trial. Zero means none.
type Limits struct {
	Time   *Duration `json:"time,omitempty" doc:"The agent's time in a trial, all stages together; waiting for our machinery or for the model's service, and calls that the service failed, are not counted. A stage whose task sets a shorter time gets that. Default: the task's own, else 30m."`
	Turns  Count     `json:"turns" doc:"Model replies. Default 100."`
	Steps  Count     `json:"steps" doc:"Actions. Default 500."`
	Tokens Count     `json:"tokens,omitempty" doc:"Tokens in and out."`
	Cost   float64   `json:"cost,omitempty" min:"0" doc:"US dollars. Needs known prices."`
	Output Size      `json:"output" doc:"Bytes of output that a trial may bring forth. Default 64MiB."`
}

// Phases bound what is not the agent's. Each always has a limit; zero means the default.
type Phases struct {
	Image   Duration `json:"image,omitempty" doc:"Getting an image ready, where its task sets no limit of its own. Default 30m."`
	Start   Duration `json:"start,omitempty" doc:"Starting and setting up the machine. Default 5m."`
	Command Duration `json:"command,omitempty" doc:"One command, where neither agent nor task says otherwise; it is killed then, and the agent is told. Default 5m."`
	Collect Duration `json:"collect,omitempty" doc:"Gathering what grading needs. Default 2m."`
	Grade   Duration `json:"grade,omitempty" doc:"Grading one stage. Default 10m."`
	Close   Duration `json:"close,omitempty" doc:"Closing the machine. Default 1m."`
	Grace   Duration `json:"grace,omitempty" doc:"For an agent to return after its time has ended, before it is abandoned. Default 10s."`
}

// A Sandbox is the machine of a trial.
type Sandbox struct {
	Driver  string   `json:"driver,omitempty" names:"driver" doc:"What makes machines: local (Linux namespaces), docker (containers), none (no isolation at all), fake (in memory), or auto, what each task needs: docker for one with an image, else local. Default auto."`
	Image   string   `json:"image,omitempty" doc:"Root file system, in place of the task's: the name of an image, for docker, or dir:/path, an unpacked one, for local."`
	CPU     float64  `json:"cpu,omitempty" min:"0" doc:"Cores."`
	Memory  Size     `json:"memory,omitempty" doc:"Memory. Default: the task's, else the driver's; likewise pids and disk."`
	Pids    int      `json:"pids,omitempty" min:"1" doc:"Processes."`
	Disk    Size     `json:"disk,omitempty" doc:"What may be written."`
	Network *Network `json:"network,omitempty" doc:"none, public, or the hosts that may be reached: names, *.wildcards, addresses, CIDR ranges. Default: what the task says, else none."`
	Browser bool     `json:"browser,omitempty" doc:"Beside the machine a browser as a tool of the agent, which reaches what listens in the machine and what the machine may reach. Default false."`
}

// Images says how container images are made ready and kept.
type Images struct {
	Pull    string `json:"pull,omitempty" enum:"missing,always" doc:"missing: only an image that is not there is pulled. always: the registry is asked, once in a run, whether a tag has moved. Default missing."`
	Budget  Quota  `json:"budget,omitempty" doc:"How much of the engine's disk images may take that evalrun made, or none. Default: six tenths of what is free and theirs together."`
	Context Size   `json:"context,omitempty" doc:"Largest context of a build, .dockerignore applied. Default 4GiB."`
}

// Browser says how tasks in a browser are played and recorded.
type Browser struct {
	Path        string `json:"path,omitempty" doc:"The program: a path, or a name on PATH. Default: chromium-headless-shell, else the first of Chromium and Chrome that is there."`
	Contexts    int    `json:"contexts,omitempty" min:"1" doc:"Episodes in browsers at once, over all browsers; a trial waits for room. Default: as many as there are workers."`
	Pace        string `json:"pace,omitempty" enum:"fast,reference" doc:"fast: after an action the page is waited for as long as it changes. reference: as long as BrowserGym waits. Default fast."`
	Screenshots *bool  `json:"screenshots,omitempty" doc:"Whether a screenshot is taken after each step, for agents and for the record. Default true."`
	SOM         bool   `json:"som,omitempty" doc:"Whether a second picture is kept of each step, with the marks of elements drawn over it. Default false."`
	Downloads   Size   `json:"downloads,omitempty" doc:"What the pages of one episode may download in all. Default 100MiB."`
}

// Pools bound what trials share.
type Pools struct {
	Starts      int  `json:"starts,omitempty" min:"1" doc:"Machines starting at once. Default 2 for each core."`
	Sandboxes   int  `json:"sandboxes,omitempty" min:"1" doc:"Machines alive at once. Default: as many as fit into memory."`
	Memory      Size `json:"memory,omitempty" doc:"Memory for all machines together. Default 80 % of what is free."`
	Connections int  `json:"connections,omitempty" min:"1" doc:"Calls at once of each model that says nothing itself. Default 64."`
	Grading     int  `json:"grading,omitempty" min:"1" doc:"Gradings at once that run in a machine or a browser. Default 2 for each core."`
	Builds      int  `json:"builds,omitempty" min:"1" doc:"Images built at once. Default half of the cores."`
	Pulls       int  `json:"pulls,omitempty" min:"1" doc:"Images pulled at once. Default 4."`
}

// Storage is the disk that the run folder lies on.
type Storage struct {
	Free Size `json:"free,omitempty" doc:"Free space below which no further trial begins: the run ends, resumable, with exit code 1. Default: 1 % of the disk, at least 256MiB and at most 5GiB."`
}

// Retries are new attempts after failures that are not the agent's.
type Retries struct {
	Attempts   int      `json:"attempts,omitempty" min:"1" doc:"Attempts of one trial at most, the first one counted. Default 3."`
	Budget     *Count   `json:"budget,omitempty" doc:"New attempts of the whole run at most. Default: a tenth of its trials, at least 10."`
	PauseAfter int      `json:"pause_after,omitempty" min:"1" doc:"An arm that failed so often in a row, not through its agent, is paused. Default 10."`
	Wait       Duration `json:"wait,omitempty" doc:"Wait before a trial's second attempt, doubled for each further one. Default 1s."`
}

// A Budget is for the whole run.
type Budget struct {
	Cost     float64 `json:"cost,omitempty" min:"0" doc:"US dollars, all models together. Needs known prices."`
	Tokens   Count   `json:"tokens,omitempty" doc:"Tokens in and out."`
	Deadline Clock   `json:"deadline,omitempty" doc:"When the run ends: a time of day such as 06:00, or a moment."`
}

// A Gate is a threshold.
type Gate struct {
	Arm    string   `json:"arm,omitempty" doc:"Which arm; default every one."`
	Metric string   `json:"metric,omitempty" enum:"mean,mean_planned,coverage,cost,difference" doc:"mean: of the evidence. mean_planned: excluded trials count 0. difference: mean of arm less mean of than, paired. Default mean."`
	Than   string   `json:"than,omitempty" doc:"The arm that difference compares with."`
	Min    *float64 `json:"min,omitempty" doc:"Least value."`
	Max    *float64 `json:"max,omitempty" doc:"Greatest value."`
}

// axis and raw stay trees until arms are laid out.
type (
	axis struct{ *node }
	raw  struct{ *node }
)

func (a *axis) SetNode(n *node) { a.node = n }
func (r *raw) SetNode(n *node)  { r.node = n }

func (a axis) MarshalJSON() ([]byte, error) { return a.JSON() }
func (r raw) MarshalJSON() ([]byte, error)  { return r.JSON() }
