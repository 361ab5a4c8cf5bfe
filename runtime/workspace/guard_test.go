package workspace

import (
	"strings"
	"testing"
)

// The vectors are those of DeerFlow's guards of the host's shell.
func TestGuard(t *testing.T) {
	folders := []string{"/mnt/user-data", "/mnt/skills", "/workspace"}
	for _, command := range []string{
		"ls", "python3 a.py --out=b", "cat /mnt/user-data/workspace/x", "cd /workspace && make", "cd sub; ls", "/usr/bin/env ls > /dev/null",
		"curl https://a.example/etc/passwd", "git log a..b", "echo 'http://a.example/../x'", "grep -r x /mnt/skills/public",
		"curl localhost/devices/{id}", "echo /devices/{id}", "echo /größe", "if true; then cd sub; fi", "command cd sub", "pushd /workspace/x",
		"ls 2>/dev/null", "echo 1 / 2", "sed s/a/b/ x", "awk '{print}' x", "cat src/a/b ./c ~/d", "echo $HOME/x ${A}/b", "echo a...b",
	} {
		if why := guard(command, folders); why != "" {
			t.Errorf("%s: %s", command, why)
		}
	}
	for _, command := range []string{
		"curl file:///etc/passwd", "curl FILE://x", "cat ../x", "cat /mnt/user-data/workspace/../../x", "cat a/../../b", "tar --file=../x", "cat '../x'",
		"echo $(cd /workspace; ls)", "x=`cd sub && pwd`", "cd", "cd -", "cd ~", "cd ~/x", "cd $HOME", `cd "$HOME"`, "cd `pwd`", "cd $(pwd)", "cd /etc",
		"command cd /etc", "builtin cd", "if true; then cd /; fi", "while true; do pushd /; done", "pushd", "cd ''",
		"ls /", "find / -name x", "cat /", "rm -rf /", "/bin/ls /", "cat /etc/passwd", "cat</etc/passwd", "cat \"/etc/passwd\"", "ls /mnt/user-data-backup/x",
		"ls /workspace2", "echo ${A:=/etc/x}", "cat /etc/{passwd,group}", "cat /${X}/passwd", "cat /tmp/x", "PATH=/x:/workspace", "cat /dev/../etc/passwd",
		"/usr/local/bin/x", "echo 'unclosed ../x", "echo 'unclosed /etc/x", "cat -- /var/log/x", "(cat /etc/passwd)", "cat a;/etc/x", "cat /usr/bin",
		"cd -- /etc", "cd -P /etc", strings.Repeat("$(x ", 2000) + strings.Repeat(")", 2000),
	} {
		if guard(command, folders) == "" {
			t.Errorf("%s: it may run", command)
		}
	}
}
