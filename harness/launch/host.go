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

// self is the owner of what this process starts.
var self = sync.OnceValue(sandbox.Self)

// Alive reports whether the owner of a machine still runs. Of another host nothing is known, so it
// counts as alive.
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

// hostFacts are what a run's record says of the machine. Its name is no part of it.
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

// MemoryTotal and MemoryFree are in bytes, and mind a cgroup's limit.
func MemoryTotal() (int64, bool) { return memory("MemTotal:", false) }

// MemoryFree is what may still be taken without swapping.
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

// binaryDigest is the SHA-256 of this program.
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
