package format

import (
	"encoding/json"
	"time"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// A Task is a task folder as it was read: defaults filled in, old names resolved, what steps
// inherit handed down to them. Names of files are relative to the folder, with slashes.
type Task struct {
	Name     string          `json:"name"`             // [task].name, else the folder's
	Schema   string          `json:"schema,omitempty"` // as written; nothing depends on it
	From     string          `json:"from,omitempty"`   // "source": where the task came from
	Package  *Package        `json:"package,omitempty"`
	Metadata json.RawMessage `json:"metadata,omitempty"` // never interpreted

	Digest   string   `json:"digest"`             // Harbor's task digest, "sha256:…"
	EnvHash  string   `json:"env_hash"`           // Harbor's environment hash
	Warnings []string `json:"warnings,omitempty"` // "task.toml:7:1: unknown key …": read all the same

	Environment Environment `json:"environment"`
	SolutionEnv Env         `json:"solution_env,omitempty"`
	// Steps has one of no name when the task is not a multi-step task. Their fields hold what they
	// inherit from the task.
	Steps    []Step `json:"steps"`
	Multi    bool   `json:"multi,omitempty"`
	Strategy string `json:"strategy,omitempty"` // of a multi-step task's reward: "mean" or "final"
}

// Package is a task's identity as a published package.
type Package struct {
	Version     string   `json:"version,omitempty"`
	Description string   `json:"description,omitempty"`
	Authors     []Author `json:"authors,omitempty"`
	Keywords    []string `json:"keywords,omitempty"`
}

// An Author of a package.
type Author struct {
	Name  string `json:"name"`
	Email string `json:"email,omitempty"`
}

// An Environment is a machine that a task describes: the agent's, or a separate verifier's.
type Environment struct {
	Dir        string `json:"dir"`                  // its files: "environment", "tests", "steps/NAME/tests"
	Image      string `json:"image,omitempty"`      // docker_image
	Dockerfile string `json:"dockerfile,omitempty"` // text of DIR/Dockerfile; "": there is none
	// Compose has the texts of DIR/docker-compose.yaml and of the files that it names, by their
	// paths below the folder; nil: there is none.
	Compose map[string]string `json:"compose,omitempty"`
	Refused string            `json:"refused,omitempty"` // why the compose file cannot be played here
	// Dir holds files and nothing that builds: they go to the working directory after the start
	Upload bool `json:"upload,omitempty"`

	OS           string            `json:"os"`                // "linux", "windows"
	BuildTimeout time.Duration     `json:"build_timeout"`     // for build and start
	CPUs         float64           `json:"cpus,omitempty"`    // 0: no limit
	Memory       int64             `json:"memory,omitempty"`  // bytes; 0: no limit
	Storage      int64             `json:"storage,omitempty"` // bytes; told, as in Harbor not enforced
	GPUs         int               `json:"gpus,omitempty"`
	GPUTypes     []string          `json:"gpu_types,omitempty"`
	TPU          *TPU              `json:"tpu,omitempty"`
	Network      sandbox.Network   `json:"network"` // the baseline
	Env          Env               `json:"env,omitempty"`
	Workdir      string            `json:"workdir,omitempty"`    // "": the image's, else /
	SkillsDir    string            `json:"skills_dir,omitempty"` // in the machine
	MCP          []agent.MCPServer `json:"mcp,omitempty"`        // as written; see [Env.Servers]
	// Health is [environment.healthcheck]. The player runs it after the start and the upload of
	// files, before the agent; it is not in the machine's spec, which has the compose file's.
	Health *sandbox.Health `json:"health,omitempty"`
}

// A TPU that a task asks for.
type TPU struct {
	Type     string `json:"type"`
	Topology string `json:"topology,omitempty"`
}

// A Step is one goal with its grade, as it is played.
type Step struct {
	Name        string `json:"name,omitempty"`
	Dir         string `json:"dir"`         // "." or "steps/NAME"
	Instruction string `json:"instruction"` // without canary

	Timeout time.Duration    `json:"timeout,omitempty"` // for the agent; 0: none
	User    string           `json:"user,omitempty"`    // of the agent; "": the image's
	Network *sandbox.Network `json:"network,omitempty"` // while the agent runs; nil: the environment's

	MinReward map[string]float64 `json:"min_reward,omitempty"` // below it, or without it, no further step is played
	Health    *sandbox.Health    `json:"health,omitempty"`     // before the agent begins this step
	// the task's, then the step's; /logs/artifacts is always collected and not listed
	Artifacts []Artifact `json:"artifacts,omitempty"`
	// folder that is uploaded to the working directory; "": none
	Workdir  string   `json:"workdir,omitempty"`
	Setup    bool     `json:"setup,omitempty"`    // Workdir has a setup.sh to run after the upload
	Solution string   `json:"solution,omitempty"` // folder with a solve.sh; "": there is no oracle
	Verifier Verifier `json:"verifier"`
}

// A Verifier grades a step.
type Verifier struct {
	Separate bool             `json:"separate,omitempty"` // in a machine of its own: Environment
	Timeout  time.Duration    `json:"timeout"`
	Env      Env              `json:"env,omitempty"` // the task's, over it the step's
	User     string           `json:"user,omitempty"`
	Network  *sandbox.Network `json:"network,omitempty"` // while it runs; nil: its environment's
	Collect  []Hook           `json:"collect,omitempty"` // the task's, then the step's
	// folders that go to /tests, later ones over earlier; none when separate
	Tests []string `json:"tests,omitempty"`

	Environment *Environment `json:"environment,omitempty"` // of a separate verifier
}

// A Hook runs after the agent, before artifacts are collected.
type Hook struct {
	Command string        `json:"command"`
	Service string        `json:"service"` // "main", or a sidecar
	Timeout time.Duration `json:"timeout"`
	User    string        `json:"user,omitempty"`
}

// An Artifact is a file or folder that is kept.
type Artifact struct {
	Source string `json:"source"` // in the machine; relative: to the working directory
	// in the artifacts' folder; "": Source without its leading slash
	Destination string   `json:"destination,omitempty"`
	Exclude     []string `json:"exclude,omitempty"` // tar patterns
	Service     string   `json:"service,omitempty"` // "": main
}

// MainService is the service that the agent works in.
const MainService = "main"
