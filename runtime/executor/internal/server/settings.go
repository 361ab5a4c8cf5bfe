package server

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/evalrun/evalrun/internal/execproto"
)

// A setting is something that root can change inside and that is no file, but acts on commands that
// are started later: what they inherit from process 1, and what outlives processes.
type setting struct{ path, name string }

// settings reads all settings. What cannot be read has no value.
func settings(mounts []mount) map[setting]string {
	out := map[setting]string{}
	if b, err := os.ReadFile("/proc/self/oom_score_adj"); err == nil {
		out[setting{"/proc/1/oom_score_adj", "the value"}] = string(b)
	}
	// Each thread of ours has its own, and a command inherits from the one that starts it.
	processors, nice := map[string]bool{}, map[string]bool{}
	threads, _ := os.ReadDir("/proc/self/task")
	for _, t := range threads {
		dir := "/proc/self/task/" + t.Name() + "/"
		if b, err := os.ReadFile(dir + "status"); err == nil {
			for line := range bytes.Lines(b) {
				if bytes.HasPrefix(line, []byte("Cpus_allowed:")) || bytes.HasPrefix(line, []byte("Mems_allowed:")) {
					processors[string(line)] = true
				}
			}
		}
		if b, err := os.ReadFile(dir + "stat"); err == nil {
			if f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:])); len(f) > 16 {
				nice[f[16]] = true
			}
		}
	}
	out[setting{"/proc/1/status", "the processors"}] = fmt.Sprint(slices.Sorted(maps.Keys(processors)))
	out[setting{"/proc/1/stat", "the priority"}] = fmt.Sprint(slices.Sorted(maps.Keys(nice)))
	for _, what := range []string{"shm", "sem", "msg"} { // the first two columns are what it is found by
		b, _ := os.ReadFile("/proc/sysvipc/" + what)
		var ids []string
		for line := range strings.Lines(string(b)) {
			if f := strings.Fields(line); len(f) > 2 {
				ids = append(ids, f[0]+" "+f[1])
			}
		}
		out[setting{"/proc/sysvipc/" + what, "the content"}] = fmt.Sprint(ids)
	}
	for i := range mounts {
		var s unix.Statfs_t
		if m := &mounts[i]; m.walk && unix.Statfs(m.path(), &s) == nil && s.Blocks > 0 {
			out[setting{m.path(), "the free space"}] = fmt.Sprint(s.Bavail > 0, s.Files == 0 || s.Ffree > 0)
		}
	}
	return out
}

// settings reports what differs from the baseline. A new mount is reported as such.
func (c *comparer) settings(now []mount) error {
	list := settings(now)
	for _, x := range slices.SortedFunc(maps.Keys(list), func(a, b setting) int {
		return strings.Compare(a.path+a.name, b.path+b.name)
	}) {
		old, known := baseline.settings[x]
		if !known || old == list[x] {
			continue
		}
		v := execproto.FileChange{Path: x.path, What: execproto.Setting, Target: x.name}
		c.enc = c.enc[:0]
		v.Encode(&c.enc)
		if err := execproto.WriteRecord(c.out, string(c.enc)); err != nil {
			return err
		}
	}
	return nil
}
