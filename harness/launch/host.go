package launch

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

// self returns the owner label of this process.
var self = sync.OnceValue(sandbox.Self)

// Alive reports whether the process that owns a sandbox is still running. An owner on another host
// counts as alive, because its state is unknown.
func Alive(o sandbox.Owner) bool {
	me := self()
	if o.Host != me.Host {
		return true
	}
	if o.Boot != me.Boot {
		return false
	}
	if err := syscall.Kill(o.PID, 0); err == syscall.ESRCH {
		return false
	}
	start, ok := sandbox.Started(o.PID)
	return ok && (o.Start == 0 || start == o.Start)
}

// hostFacts returns the facts about this machine that go into a run's record. The host name is not
// among them.
func hostFacts() map[string]string {
	facts := map[string]string{
		"os": runtime.GOOS, "arch": runtime.GOARCH, "cpus": strconv.Itoa(runtime.NumCPU()),
		"gomaxprocs": strconv.Itoa(runtime.GOMAXPROCS(0)), "go": runtime.Version(),
	}
	var u syscall.Utsname
	if syscall.Uname(&u) == nil {
		var b []byte
		for _, c := range u.Release {
			if c == 0 {
				break
			}
			b = append(b, byte(c))
		}
		facts["kernel"] = string(b)
	}
	if m, ok := MemoryTotal(); ok {
		facts["memory_bytes"] = strconv.FormatInt(m, 10)
	}
	return facts
}

// MemoryTotal returns this machine's memory in bytes, or its cgroup's limit if that is lower.
func MemoryTotal() (int64, bool) { return memory("MemTotal:", false) }

// MemoryFree returns the memory in bytes that can be used without swapping, within the limit of the
// cgroup.
func MemoryFree() (int64, bool) { return memory("MemAvailable:", true) }

func memory(key string, free bool) (int64, bool) {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, false
	}
	n, ok := int64(0), false
	sc := bufio.NewScanner(bytes.NewReader(b))
	for sc.Scan() {
		if f := strings.Fields(sc.Text()); len(f) >= 2 && f[0] == key {
			kb, err := strconv.ParseInt(f[1], 10, 64)
			n, ok = kb<<10, err == nil
		}
	}
	for _, c := range [][2]string{
		{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"},
		{"/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"},
	} {
		limit, ok1 := readInt(c[0])
		if !ok1 {
			continue
		}
		if used, ok2 := readInt(c[1]); ok2 && free {
			limit -= used
		}
		if ok && limit < n {
			n = max(limit, 0)
		}
	}
	return n, ok
}

func readInt(name string) (int64, bool) {
	b, err := os.ReadFile(name)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	return n, err == nil
}

// binaryDigest returns the SHA-256 of this program's binary.
func binaryDigest() string {
	name, err := os.Executable()
	if err != nil {
		return ""
	}
	f, err := os.Open(name)
	if err != nil {
		return ""
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return ""
	}
	return hex.EncodeToString(h.Sum(nil))
}
