package format

import (
	"errors"
	"io/fs"
	"maps"
	"path"
	"strconv"
	"testing/fstest"

	"github.com/evalrun/evalrun/benchmarks/harbor/compose"
)

const composeFile = "docker-compose.yaml"

// Paths in every machine of a task.
const (
	SolutionDir  = "/solution" // only while the oracle plays
	AgentLogs    = "/logs/agent"
	VerifierLogs = "/logs/verifier"
	ArtifactsDir = "/logs/artifacts"
	TestsDir     = "/tests"
)

// BuiltImage is the value of ${MAIN_IMAGE_NAME}: the image built from the environment's own files.
const BuiltImage = "hb__main"

// composeMounts are the host paths that compose files of the old form mount, as named volumes.
var composeMounts = map[string]string{
	"/.evalrun/verifier-logs": "harness-verifier-logs",
	"/.evalrun/agent-logs":    "harness-agent-logs",
	"/.evalrun/artifacts":     "harness-artifacts",
}

// composeVars are the variables of a compose file: Harbor's own, the task's, and of this machine
// those that the run allows.
func (e *Environment) composeVars(env map[string]string, get Lookup) compose.Vars {
	own := map[string]string{
		"MAIN_IMAGE_NAME": BuiltImage, "PREBUILT_IMAGE_NAME": e.Image, "CONTEXT_DIR": ".", "TEST_DIR": TestsDir,
		"HOST_VERIFIER_LOGS_PATH": "/.evalrun/verifier-logs", "HOST_AGENT_LOGS_PATH": "/.evalrun/agent-logs",
		"HOST_ARTIFACTS_PATH":    "/.evalrun/artifacts",
		"ENV_VERIFIER_LOGS_PATH": VerifierLogs, "ENV_AGENT_LOGS_PATH": AgentLogs, "ENV_ARTIFACTS_PATH": ArtifactsDir,
		"CPUS": "", "MEMORY": "",
	}
	if e.CPUs > 0 {
		own["CPUS"] = strconv.FormatFloat(e.CPUs, 'g', -1, 64)
	}
	if e.Memory > 0 {
		own["MEMORY"] = strconv.FormatInt(e.Memory>>20, 10) + "M"
	}
	return func(name string) (string, bool, error) {
		if v, ok := own[name]; ok {
			return v, v != "", nil
		}
		if v, ok := env[name]; ok {
			return v, true, nil
		}
		v, err := get(name)
		if err != nil {
			return "", false, &MissingVariable{Where: composeFile, Name: name}
		}
		return v, true, nil
	}
}

// readCompose reads the environment's compose file; nil: it has none. env are the environment's own
// variables.
func (e *Environment) readCompose(fsys fs.FS, env map[string]string, get Lookup) (*compose.Project, error) {
	if e.Compose == nil {
		return nil, nil
	}
	return compose.Read(fsys, path.Join(e.Dir, composeFile),
		compose.Options{Main: []string{MainService}, Optional: true, Vars: e.composeVars(env, get),
			Folders: composeMounts})
}

// ComposeProject reads the compose file from the texts that the task holds, without I/O; nil: the
// environment has none. env are the environment's own variables, get looks up those of this
// machine. Variables that the run does not allow are *[MissingVariable] errors.
func (e *Environment) ComposeProject(env map[string]string, get Lookup) (*compose.Project, error) {
	return e.readCompose(e.composeFiles(), env, get)
}

// composeFiles is a file system of the texts that were kept when the task was read.
func (e *Environment) composeFiles() fs.FS {
	m := fstest.MapFS{}
	for name, text := range e.Compose {
		m[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return m
}

// compose reads a folder's compose file, to say what is wrong with it and to keep the texts that it
// needs.
func (l *loader) compose(e *Environment) {
	if !l.isFile(path.Join(e.Dir, composeFile)) {
		return
	}
	rec := &recorder{l.fsys, map[string]string{}}
	e.Compose = map[string]string{}
	// What a run allows is not known here: a variable that is not declared is taken for set.
	p, err := e.readCompose(rec, e.Env, func(string) (string, error) { return Placeholder, nil })
	maps.Copy(e.Compose, rec.texts)
	switch {
	case compose.OnlyRefused(err):
		e.Refused = err.Error()
	case err != nil:
		l.errs = append(l.errs, distinctErrors(unjoin(err))...)
	default:
		for _, w := range p.Warnings {
			l.warn("%s", w)
		}
	}
}

// Placeholder stands for a variable's value that is not known yet. It is also a valid number.
const Placeholder = "1"

func unjoin(err error) []error {
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		return many.Unwrap()
	}
	return []error{err}
}

// A recorder keeps the texts that are read, and names of what is only looked at.
type recorder struct {
	fs.FS
	texts map[string]string
}

func (r *recorder) Stat(name string) (fs.FileInfo, error) {
	info, err := fs.Stat(r.FS, name)
	if _, ok := r.texts[name]; err == nil && !ok {
		r.texts[name] = ""
	}
	return info, err
}

func (r *recorder) ReadFile(name string) ([]byte, error) {
	b, err := fs.ReadFile(r.FS, name)
	if err == nil {
		r.texts[name] = string(b)
	}
	return b, err
}

// OnlyMissing reports whether an error consists of [MissingVariable] errors alone.
func OnlyMissing(err error) (only bool) {
	if err == nil {
		return false
	}
	for _, e := range unjoin(err) {
		if sub := unjoin(e); len(sub) > 1 {
			if !OnlyMissing(e) {
				return false
			}
		} else if !errors.As(e, new(*MissingVariable)) {
			return false
		}
	}
	return true
}
