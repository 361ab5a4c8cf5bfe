package terminalbench

import (
	"fmt"
	"io/fs"
	"strings"
	"testing/fstest"

	"github.com/evalrun/evalrun/benchmarks/harbor/compose"
)

// Folders that v1 mounts from the host. Nothing of the host is mounted here: these names only say
// which folders to make.
const (
	hostLogs      = "/.evalrun/logs"
	hostAgentLogs = "/.evalrun/agent-logs"
)

// variables are those that v1 declares for a task's compose file. Names of images and containers
// are unique by other means here, so they are the same in every trial.
func variables(id string) compose.Vars {
	name := strings.Map(func(r rune) rune { // machines are known by it, so it is a name that a machine may have
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' {
			return r
		}
		return '-'
	}, id)
	if name = strings.Trim(name[:min(len(name), 40)], "-_"); name == "" {
		name = "task"
	}
	values := map[string]string{
		"TASK_DOCKER_CLIENT_IMAGE_NAME":     "tb__" + name + "__client",
		"TASK_DOCKER_CLIENT_CONTAINER_NAME": name,
		"TASK_DOCKER_NAME_PREFIX":           "tb__" + name,
		"TEST_DIR":                          testsDir,
		"TASK_LOGS_PATH":                    hostLogs,
		"CONTAINER_LOGS_PATH":               logsDir,
		"TASK_AGENT_LOGS_PATH":              hostAgentLogs,
		"CONTAINER_AGENT_LOGS_PATH":         agentLogsDir,
	}
	return func(name string) (string, bool, error) {
		if short, ok := strings.CutPrefix(name, "T_BENCH_"); ok {
			if v, ok := values[short]; ok {
				return v, true, nil
			}
		}
		return "", false, fmt.Errorf("the variable %s is none of Terminal-Bench's (T_BENCH_TEST_DIR …); this "+
			"machine's are not handed on", name)
	}
}

// withDefaultCompose is a task folder with the usual compose file in it.
type withDefaultCompose struct{ fs.FS }

func (w withDefaultCompose) Open(name string) (fs.File, error) {
	if name == composeFile {
		return fstest.MapFS{composeFile: {Data: []byte(defaultCompose), Mode: 0o644}}.Open(name)
	}
	return w.FS.Open(name)
}
