// Package config reads the configuration of a run. Parsing is strict: an unknown key is an error
// with its file, line, column and the nearest known key, and all errors of a file are reported
// together.
//
// The structs of this file are the only definition of the format: [Parse] decodes with them, and
// [Schema] prints them as JSON Schema. An effective configuration ([Effective]) is again a [File],
// with defaults filled in and the matrix expanded into arms, so that the same code can show it,
// store it in a run folder and read it back. Until then, values keep their positions.
//
// A secret is always the reference ${NAME} to an environment variable. The code that starts the run
// resolves references; no value of this package ever holds a secret.
package config

import (
	"encoding/json"
	"time"

	"github.com/evalrun/evalrun/agent/model"
)

// A File is a configuration. The tag doc is the key's description in the schema; enum, min and
// names restrict its values.
type File struct {
	Name string `json:"name,omitempty" doc:"Name of the run, part of the run folder's name."`

	Benchmark  *Benchmark  `json:"benchmark,omitempty" doc:"The benchmark to run."`
	Benchmarks []Benchmark `json:"benchmarks,omitempty" doc:"Several benchmarks."`
	Select     *Select     `json:"select,omitempty" doc:"Which tasks of each benchmark to run."`
	Shard      *Shard      `json:"shard,omitempty" doc:"One part of the tasks, to split a run over machines: 2/8 is the second of eight."`

	Agent   *Agent        `json:"agent,omitempty" doc:"Agent of every arm that does not set one."`
	Model   *Model        `json:"model,omitempty" doc:"Model of every arm that does not set one."`
	Prompt  *Prompt       `json:"prompt,omitempty" doc:"Prompt of every arm that does not set one."`
	Params  *model.Params `json:"params,omitempty" doc:"Sampling parameters of every arm."`
	Tape    *Tape         `json:"tape,omitempty" doc:"Tape of every model that does not set one."`
	Limits  *Limits       `json:"limits,omitempty" doc:"Limits of one trial. A trial that reaches a limit ends there and is graded."`
	Phases  *Phases       `json:"phases,omitempty" doc:"Time limits of the phases around the agent. A trial that reaches one is not evidence about the agent."`
	Sandbox *Sandbox      `json:"sandbox,omitempty" doc:"Sandbox of every trial. The task decides what is not set."`
	Images  *Images       `json:"images,omitempty" doc:"How container images are built, pulled and kept."`
	Browser *Browser      `json:"browser,omitempty" doc:"Browsers, for tasks that need one."`

	Matrix  map[string]axis   `json:"matrix,omitempty" doc:"Arms as the product of named axes. An axis is agent, model or prompt, a dotted path such as params.temperature or limits.turns, or a name of your own whose values are mappings of keys to set. Axes become columns of the results."`
	Include []map[string]raw  `json:"include,omitempty" doc:"Cells to add to the matrix."`
	Exclude []map[string]raw  `json:"exclude,omitempty" doc:"Cells to remove from the matrix: those that match all axes given here."`
	Arms    []Arm             `json:"arms,omitempty" doc:"Arms, one by one."`
	Models  map[string]*Model `json:"models,omitempty" doc:"Models under names of your own, for the key model of an arm."`
	Roles   map[string]*Model `json:"roles,omitempty" doc:"Models that benchmarks use in addition to the arm's: grader, user."`

	Repeats int     `json:"repeats,omitempty" min:"1" doc:"Trials per task and arm. Default 1."`
	Seed    *uint64 `json:"seed,omitempty" doc:"Random seed. Default 1."`

	Workers int      `json:"workers,omitempty" min:"1" doc:"Number of trials at once, shared fairly among accounts and arms. Trials that wait for their turn at the model do not count, but at most twice as many are alive. Default: 4 per core, 64 if trials need neither sandbox nor browser."`
	Pools   *Pools   `json:"pools,omitempty" doc:"Limits on what trials share."`
	Retries *Retries `json:"retries,omitempty" doc:"Retries after failures that are not the agent's fault."`
	Storage *Storage `json:"storage,omitempty" doc:"Disk space of the run folder."`
	Budget  *Budget  `json:"budget,omitempty" doc:"Limits of the whole run. When one is reached, the run stops with exit code 5 and can be resumed."`

	Gates       []Gate   `json:"gates,omitempty" doc:"Thresholds; if one is missed, the exit code is 4."`
	Success     *float64 `json:"success,omitempty" doc:"Smallest reward that counts as success in pass@k, pass^k and the lists of passed and failed trials. Default: the full score, 1; pass@k is then computed only if all rewards are 0 or 1."`
	MinCoverage *float64 `json:"min_coverage,omitempty" min:"0" max:"1" doc:"Smallest share of planned trials that must be evidence; below it the exit code is 3. Default 1."`

	Integrity string `json:"integrity,omitempty" enum:"off,flag,confirm,confirm-all,require,warn,fail" doc:"What to do about agents that may have deceived a grader on their own machine: off; flag tampering with the tests or the reward; confirm, so that a pass for which the grader used something other than the agent's work is graded again in a fresh machine that has only the work; confirm-all, so that every pass is; require, as confirm, and an unconfirmed pass, or one with a flag, scores 0. Default confirm. Earlier versions wrote warn for flag, and fail for require."`

	KeepRequests bool `json:"keep_requests,omitempty" doc:"Store each request to a model as it was sent. Replies are always stored."`

	EnvFile string            `json:"env_file,omitempty" doc:"A .env file with variables for secrets. Variables of the environment take precedence."`
	Secrets map[string]Secret `json:"secrets,omitempty" doc:"Secrets that benchmarks and agents can use by name."`
}

// A Benchmark is a task source with options. Short form: name or name:path.
type Benchmark struct {
	Name    string          `json:"name,omitempty" required:"true" doc:"Which benchmark: quickstart, humaneval, qa, tasks …"`
	Path    string          `json:"path,omitempty" doc:"Its data, relative to the configuration's folder."`
	Options json.RawMessage `json:"options,omitempty" doc:"The benchmark's own options."`
	Select  *Select         `json:"select,omitempty" doc:"Which of its tasks to run; unset keys come from the run's select."`
}

// Select says which tasks run. The tasks left after ids, tags and filter are sampled, then limited.
type Select struct {
	IDs    []string `json:"ids,omitempty" min:"1" doc:"Patterns of task ids, such as 'web*'; one must match. A leading ! excludes."`
	Tags   []string `json:"tags,omitempty" min:"1" doc:"Tags; a task needs one of them. A leading ! excludes."`
	Filter []string `json:"filter,omitempty" doc:"Conditions on task fields, such as difficulty=hard or lang!=c; all must hold."`
	Sample int      `json:"sample,omitempty" min:"1" doc:"Number of tasks to sample at random, with the run's seed."`
	Limit  int      `json:"limit,omitempty" min:"1" doc:"Number of tasks to take from the beginning."`
}

// An Arm is one of the compared configurations.
type Arm struct {
	Name    string            `json:"name,omitempty" doc:"Name of the arm. Default: made from agent, model and prompt."`
	Agent   *Agent            `json:"agent,omitempty" doc:"The agent."`
	Model   *Model            `json:"model,omitempty" doc:"The model: vendor/NAME, a name from models, or a mapping."`
	Prompt  *Prompt           `json:"prompt,omitempty" doc:"The system prompt: a file, or a mapping."`
	Params  *model.Params     `json:"params,omitempty" doc:"Sampling parameters; they override the run's."`
	Limits  *Limits           `json:"limits,omitempty" doc:"Limits; they override the run's."`
	Sandbox *Sandbox          `json:"sandbox,omitempty" doc:"Sandbox settings; they override the run's, except for the driver."`
	Axes    map[string]string `json:"axes,omitempty" doc:"Extra columns of the results, like the axes of a matrix."`
}

// An Agent selects the agent. Short form: name or name:argument.
type Agent struct {
	Name    string            `json:"name,omitempty" required:"true" doc:"Which agent: oracle, nop, script, command, codeact …"`
	Arg     string            `json:"arg,omitempty" doc:"The part after the colon of the short form: script:FILE, command:LINE."`
	Options json.RawMessage   `json:"options,omitempty" doc:"The agent's own options."`
	Secrets map[string]Secret `json:"secrets,omitempty" doc:"Environment variables for an external agent."`
}

// A Model says which model answers and how to reach it. Short form: vendor/NAME, or a name from
// models.
type Model struct {
	Name    string `json:"name,omitempty" required:"true" doc:"vendor/NAME, such as openai/gpt-4o-mini."`
	BaseURL string `json:"base_url,omitempty" doc:"Address of the service: any server that speaks the vendor's protocol. Default: the vendor's usual variable (OPENAI_BASE_URL), else the vendor's own address."`
	Key     Secret `json:"key,omitempty" doc:"API key, as a reference ${NAME}. Default: the vendor's usual variable."`
	Window  int64  `json:"window,omitempty" min:"1" doc:"Context window in tokens, if evalrun does not know it."`
	Images  *bool  `json:"images,omitempty" doc:"Whether the model takes images. If not, requests contain none, and agents that need images refuse to start. Default true."`
	Price   *Price `json:"price,omitempty" doc:"US dollars per million tokens; overrides the built-in table."`
	Tape    *Tape  `json:"tape,omitempty" doc:"Record replies to a file, or replay them from one."`

	Connections int      `json:"connections,omitempty" min:"1" doc:"Concurrent calls, over all arms that use the same address and key. Default: pools.connections."`
	PerMinute   float64  `json:"per_minute,omitempty" min:"0" doc:"Maximum calls per minute, over the same arms."`
	Tries       int      `json:"tries,omitempty" min:"1" doc:"Failed tries per call, after which the trial ends with status provider. A refusal (HTTP 429, 503, 529) is not a failed try. Default 10."`
	Timeout     Duration `json:"timeout,omitempty" doc:"Time limit of one try of a call. Default 10m."`
	Patience    Duration `json:"patience,omitempty" doc:"How long to retry a call that the service fails or refuses, without its time in evalrun's queue. Default 30m."`
}

// A Price is in US dollars per million tokens. An unset price is unknown.
type Price struct {
	In         *float64 `json:"in,omitempty" min:"0" max:"1000000" doc:"Input tokens."`
	Out        *float64 `json:"out,omitempty" min:"0" max:"1000000" doc:"Output tokens."`
	Cached     *float64 `json:"cached,omitempty" min:"0" max:"1000000" doc:"Input tokens read from the provider's cache."`
	CacheWrite *float64 `json:"cache_write,omitempty" min:"0" max:"1000000" doc:"Input tokens written to the provider's cache."`
}

// A Tape stores model replies. Short form: the file, to replay.
type Tape struct {
	File  string `json:"file,omitempty" required:"true" doc:"Path of the tape."`
	Mode  string `json:"mode,omitempty" enum:"replay,record" doc:"Default replay."`
	Loose bool   `json:"loose,omitempty" doc:"Replay a reply even if its request has changed."`
}

// A Prompt is text given to an agent in addition to its task. Short form: a file.
type Prompt struct {
	Name string `json:"name,omitempty" doc:"Label in the results. Default: the file name without its extension."`
	File string `json:"file,omitempty" doc:"A text file, relative to the configuration's folder."`
	Text string `json:"text,omitempty" doc:"The prompt itself."`
}

// DefaultTime is the agent's time limit if neither configuration nor task sets one.
const DefaultTime = Duration(30 * time.Minute)

// Limits of one trial. Zero means no limit.
type Limits struct {
	Time   *Duration `json:"time,omitempty" doc:"The agent's time in a trial, all stages together. Time spent waiting for evalrun or the model's service, and failed calls, do not count. A stage gets the task's own limit if that is shorter. Default: the task's limit, else 30m."`
	Turns  Count     `json:"turns" doc:"Model replies. Default 100."`
	Steps  Count     `json:"steps" doc:"Actions. Default 500."`
	Tokens Count     `json:"tokens,omitempty" doc:"Input and output tokens together."`
	Cost   float64   `json:"cost,omitempty" min:"0" doc:"US dollars. Requires known prices."`
	Output Size      `json:"output" doc:"Bytes of output of a trial. Default 64MiB."`
}

// Phases sets the timeouts of phases other than the agent's run. Each always has a timeout; zero
// means the default.
type Phases struct {
	Image   Duration `json:"image,omitempty" doc:"Building or pulling an image, if the task sets no limit. Default 30m."`
	Start   Duration `json:"start,omitempty" doc:"Starting and setting up the sandbox. Default 5m."`
	Command Duration `json:"command,omitempty" doc:"One command, unless agent or task set another limit. The command is killed and the agent is told. Default 5m."`
	Collect Duration `json:"collect,omitempty" doc:"Collecting the evidence for grading. Default 2m."`
	Grade   Duration `json:"grade,omitempty" doc:"Grading one stage. Default 10m."`
	Close   Duration `json:"close,omitempty" doc:"Removing the sandbox. Default 1m."`
	Grace   Duration `json:"grace,omitempty" doc:"Time for an agent to return after its limit, before it is abandoned. Default 10s."`
}

// A Sandbox configures the sandbox of a trial.
type Sandbox struct {
	Driver  string   `json:"driver,omitempty" names:"driver" doc:"Sandbox driver: local (Linux namespaces), docker (containers), none (no isolation), or auto, which chooses for each task: docker if it has an image, else local. Default auto."`
	Image   string   `json:"image,omitempty" doc:"Root file system that replaces the task's: an image name for docker, or dir:/path of an unpacked one for local."`
	CPU     float64  `json:"cpu,omitempty" min:"0" doc:"CPU cores."`
	Memory  Size     `json:"memory,omitempty" doc:"Memory. Default for memory, pids and disk: the task's value, else the driver's."`
	Pids    int      `json:"pids,omitempty" min:"1" doc:"Maximum number of processes."`
	Disk    Size     `json:"disk,omitempty" doc:"Disk space that may be written."`
	Network *Network `json:"network,omitempty" doc:"none, public, or a list of allowed hosts: names, *.wildcards, addresses, CIDR ranges. Default: the task's value, else none."`
	Browser bool     `json:"browser,omitempty" doc:"Give the agent a browser as a tool. It reaches servers inside the sandbox and whatever the sandbox may reach. Default false."`
}

// Images configures how container images are prepared and kept.
type Images struct {
	Pull    string `json:"pull,omitempty" enum:"missing,always" doc:"missing: pull an image only if the engine does not have it. always: ask the registry once per run whether a tag has moved. Default missing."`
	Budget  Quota  `json:"budget,omitempty" doc:"Disk space for images that evalrun built or pulled, or none for no limit. Default: 60 % of the free space plus what they take now."`
	Context Size   `json:"context,omitempty" doc:"Maximum size of a build context, after .dockerignore. Default 4GiB."`
}

// Browser configures how browser tasks run and are recorded.
type Browser struct {
	Path        string `json:"path,omitempty" doc:"Browser program: a path, or a name on PATH. Default: chromium-headless-shell, else Chromium or Chrome."`
	Contexts    int    `json:"contexts,omitempty" min:"1" doc:"Concurrent episodes in browsers, over all browsers; further trials wait. Default: the number of workers."`
	Pace        string `json:"pace,omitempty" enum:"fast,reference" doc:"fast: after an action, wait until the page stops changing. reference: wait as long as BrowserGym does. Default fast."`
	Screenshots *bool  `json:"screenshots,omitempty" doc:"Take a screenshot after each step, for agents and the record. Default true."`
	SOM         bool   `json:"som,omitempty" doc:"Store a second picture of each step, with the marks of elements drawn on it. Default false."`
	Downloads   Size   `json:"downloads,omitempty" doc:"Bytes that the pages of one episode may download in total. Default 100MiB."`
}

// Pools limits what trials share.
type Pools struct {
	Starts      int    `json:"starts,omitempty" min:"1" doc:"Sandboxes starting at once. Default 2 per core."`
	Sandboxes   int    `json:"sandboxes,omitempty" min:"1" doc:"Sandboxes alive at once. Default: as many as fit into memory."`
	Memory      Size   `json:"memory,omitempty" doc:"Memory of all sandboxes together. Default 80 % of the free memory."`
	Ahead       *Count `json:"ahead,omitempty" doc:"Containers of the next trials that are started ahead, within the limits above; 0: none. Default 2 per core."`
	Connections int    `json:"connections,omitempty" min:"1" doc:"Concurrent calls of each model that does not set its own limit. Default 64."`
	Grading     int    `json:"grading,omitempty" min:"1" doc:"Concurrent gradings that need a sandbox or a browser. Default 2 per core."`
	Builds      int    `json:"builds,omitempty" min:"1" doc:"Images built at once. Default half of the cores."`
	Pulls       int    `json:"pulls,omitempty" min:"1" doc:"Images pulled at once. Default 4."`
}

// Storage configures the disk that holds the run folder.
type Storage struct {
	Free Size `json:"free,omitempty" doc:"Free space below which no further trial starts: the run stops with exit code 1 and can be resumed. Default: 1 % of the disk, between 256MiB and 5GiB."`
}

// Retries configures new attempts after failures that are not the agent's.
type Retries struct {
	Attempts   int      `json:"attempts,omitempty" min:"1" doc:"Maximum attempts per trial, including the first. Default 3."`
	Budget     *Count   `json:"budget,omitempty" doc:"Maximum retries of the whole run. Default: a tenth of its trials, at least 10."`
	PauseAfter int      `json:"pause_after,omitempty" min:"1" doc:"Pause an arm after this many failures in a row that are not its agent's fault. Default 10."`
	Wait       Duration `json:"wait,omitempty" doc:"Wait before a trial's second attempt; doubles for each further attempt. Default 1s."`
}

// A Budget limits the whole run.
type Budget struct {
	Cost     float64 `json:"cost,omitempty" min:"0" doc:"US dollars, all models together. Requires known prices."`
	Tokens   Count   `json:"tokens,omitempty" doc:"Input and output tokens together."`
	Deadline Clock   `json:"deadline,omitempty" doc:"When the run stops: a time of day such as 06:00, or a date and time."`
}

// A Gate is a threshold on a result.
type Gate struct {
	Arm    string   `json:"arm,omitempty" doc:"Name of the arm. Default: all arms."`
	Metric string   `json:"metric,omitempty" enum:"mean,mean_confirmed,mean_planned,unconfirmed,coverage,cost,difference" doc:"mean: over the trials that are evidence. mean_confirmed: unconfirmed scores count 0. mean_planned: excluded trials count 0. unconfirmed: how many scores are. difference: mean of arm minus mean of than, paired. Default mean."`
	Than   string   `json:"than,omitempty" doc:"Baseline arm of difference."`
	Min    *float64 `json:"min,omitempty" doc:"Smallest allowed value."`
	Max    *float64 `json:"max,omitempty" doc:"Largest allowed value."`
}

// axis and raw stay trees until arms are expanded.
type (
	axis struct{ *node }
	raw  struct{ *node }
)

func (a *axis) SetNode(n *node) { a.node = n }
func (r *raw) SetNode(n *node)  { r.node = n }

func (a axis) MarshalJSON() ([]byte, error) { return a.JSON() }
func (r raw) MarshalJSON() ([]byte, error)  { return r.JSON() }
