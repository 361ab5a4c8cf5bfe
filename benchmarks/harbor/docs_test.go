package harbor

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

const page = "../../docs/harbor.md"

// Every row of docs/harbor.md names tests that exist.
func TestDocs(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	function := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	for _, dir := range []string{".", "compose", "format", "../terminalbench"} {
		files, _ := filepath.Glob(filepath.Join(dir, "*_test.go"))
		for _, f := range files {
			source, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range function.FindAllSubmatch(source, -1) {
				known[string(m[1])] = true
			}
		}
	}
	rows, header := 0, false
	name := regexp.MustCompile("`(Test\\w+)`")
	for i, line := range strings.Split(string(text), "\n") {
		if !strings.HasPrefix(line, "|") {
			header = false
			continue
		}
		if !header || strings.HasPrefix(line, "|---") { // a table's first two lines
			header = true
			continue
		}
		rows++
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		if len(cells) != 3 {
			t.Errorf("line %d has %d cells: %s", i+1, len(cells), line)
			continue
		}
		tests := name.FindAllStringSubmatch(cells[2], -1)
		if len(tests) == 0 {
			t.Errorf("line %d: %s names no test", i+1, cells[0])
		}
		for _, m := range tests {
			if !known[m[1]] {
				t.Errorf("line %d: %s: there is no %s", i+1, cells[0], m[1])
			}
		}
	}
	if rows < 100 {
		t.Errorf("the page has %d rows", rows)
	}
}

// Every field of the formats, and every option, has its row.
func TestDocsFields(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Fields(`schema_version version source artifacts multi_step_reward_strategy steps task.name task.version task.description task.authors task.keywords metadata
		agent.timeout_sec agent.user agent.network_mode agent.allowed_hosts
		verifier.timeout_sec verifier.env verifier.user verifier.network_mode verifier.allowed_hosts verifier.environment_mode verifier.environment verifier.collect
		environment.build_timeout_sec environment.docker_image environment.os environment.cpus environment.memory_mb environment.storage_mb environment.gpus environment.gpu_types environment.tpu
		environment.network_mode environment.allowed_hosts environment.mcp_servers environment.env environment.skills_dir environment.healthcheck environment.workdir environment.allow_internet
		environment.memory environment.storage solution.env steps.name steps.agent steps.verifier steps.min_reward steps.healthcheck steps.artifacts
		instruction author_name author_email difficulty category tags parser_name max_agent_timeout_sec max_test_timeout_sec run_tests_in_same_shell disable_asciinema estimated_duration_sec
		expert_time_estimate_min junior_time_estimate_min T_BENCH_TASK_DOCKER_CLIENT_IMAGE_NAME T_BENCH_TASK_DOCKER_CLIENT_CONTAINER_NAME T_BENCH_TASK_DOCKER_NAME_PREFIX T_BENCH_TEST_DIR
		T_BENCH_TASK_LOGS_PATH T_BENCH_CONTAINER_LOGS_PATH T_BENCH_TASK_AGENT_LOGS_PATH T_BENCH_CONTAINER_AGENT_LOGS_PATH`)
	for f := range reflect.TypeFor[Options]().Fields() {
		key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		want = append(want, key)
	}
	for _, key := range want {
		if !regexp.MustCompile("`" + regexp.QuoteMeta(key) + "(:[^`]*)?`").Match(text) {
			t.Errorf("the page has no %s", key)
		}
	}
}
