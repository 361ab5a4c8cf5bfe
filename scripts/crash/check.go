package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/evalrun/evalrun/harness/record"
)

// verdicts are what a run says of its trials: status, end, reward.
type verdicts map[string]string

// scan reads a run's control journal: the final verdict of each trial, and that nothing was done after it.
func scan(run string) (verdicts, error) {
	f, err := os.Open(filepath.Join(run, "journal", "control.jsonl"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	got := verdicts{}
	r := bufio.NewReaderSize(f, 1<<20)
	last := int64(0)
	for n := 1; ; n++ {
		line, err := r.ReadBytes('\n')
		if err != nil { // a torn tail is the resume's business
			return got, nil
		}
		var l struct {
			E record.Entry `json:"e"`
		}
		if err := json.Unmarshal(line, &l); err != nil {
			return got, fmt.Errorf("%s:%d: %w: %.200s", f.Name(), n, err, line)
		}
		e := l.E
		if e.Seq <= last {
			return got, fmt.Errorf("%s:%d: seq %d after %d", f.Name(), n, e.Seq, last)
		}
		last = e.Seq
		if e.Trial == "" {
			continue
		}
		if was, ok := got[e.Trial]; ok && e.Kind != record.KindAmend {
			return got, fmt.Errorf("%s:%d: an entry %q of trial %s, attempt %d, after its final verdict (%s)", f.Name(), n, e.Kind, e.Trial, e.Attempt, was)
		}
		if e.Kind == record.KindVerdict {
			var v record.Verdict
			if err := json.Unmarshal(e.Data, &v); err != nil {
				return got, fmt.Errorf("%s:%d: %w", f.Name(), n, err)
			}
			if v.Final {
				reward := "none"
				if v.Reward != nil {
					reward = strconv.FormatFloat(*v.Reward, 'g', -1, 64)
				}
				got[e.Trial] = fmt.Sprintf("%s %s %s", v.Status, v.End, reward)
			}
		}
	}
}

func same(want, got verdicts) error {
	var diffs []string
	for t, w := range want {
		if g, ok := got[t]; !ok || g != w {
			diffs = append(diffs, fmt.Sprintf("trial %s: %q, undisturbed %q", t, g, w))
		}
	}
	for t := range got {
		if _, ok := want[t]; !ok {
			diffs = append(diffs, fmt.Sprintf("trial %s: not in the undisturbed run", t))
		}
	}
	if diffs == nil {
		return nil
	}
	slices.Sort(diffs)
	if len(diffs) > 10 {
		diffs = append(diffs[:10], fmt.Sprintf("… and %d more", len(diffs)-10))
	}
	return errors.New(strings.Join(diffs, "\n"))
}

// leftovers lists what runs of ours may have left: processes that came to us, files in the temporary folder, state files
// of drivers, control groups, mounts. What before holds is left out. No child of ours may be running that is waited for elsewhere.
func leftovers(tmp string, before map[string]bool) map[string]bool {
	out := map[string]bool{}
	add := func(kind, what string) {
		if k := kind + " " + what; !before[k] {
			out[k] = true
		}
	}
	// Ended processes that came to us are not left over, only not yet waited for.
	for {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		if err != nil || pid <= 0 {
			break
		}
	}
	for _, pid := range descendants(os.Getpid()) {
		name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		add("process", fmt.Sprintf("%d %q", pid, bytes.ReplaceAll(name, []byte{0}, []byte{' '})))
	}
	entries, _ := os.ReadDir(tmp)
	for _, e := range entries {
		add("file", filepath.Join(tmp, e.Name()))
	}
	for _, dir := range []string{"/run/evalrun/local", filepath.Join(os.Getenv("XDG_RUNTIME_DIR"), "evalrun/local")} {
		list, _ := filepath.Glob(filepath.Join(dir, "*.json"))
		for _, name := range list {
			add("state", name)
		}
	}
	groups, _ := filepath.Glob("/sys/fs/cgroup/*")
	for _, g := range groups {
		filepath.WalkDir(g, func(name string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() && strings.HasPrefix(d.Name(), "evalrun-") {
				add("control group", name)
				return fs.SkipDir
			}
			return nil
		})
	}
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(mounts)) {
		add("mount", strings.TrimSpace(line))
	}
	return out
}

// clean waits until nothing is left that was not there before. Others may use this machine too: what goes within a while
// is not counted.
func clean(tmp string, before map[string]bool) error {
	var left map[string]bool
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if left == nil {
			left = leftovers(tmp, before)
		} else { // only what was there at first: another run's things come and go
			now := leftovers(tmp, before)
			for k := range left {
				if !now[k] {
					delete(left, k)
				}
			}
		}
		if len(left) == 0 {
			return nil
		}
	}
	var names []string
	for k := range left {
		names = append(names, k)
	}
	slices.Sort(names)
	return fmt.Errorf("left over:\n  %s", strings.Join(names, "\n  "))
}

// descendants are the processes below one, zombies left out.
func descendants(root int) []int {
	parents := map[int]int{}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		b, err := os.ReadFile(filepath.Join(d, "stat"))
		if err != nil {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(d))
		f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
		if len(f) > 1 && f[0] != "Z" {
			parents[pid], _ = strconv.Atoi(f[1])
		}
	}
	var out []int
	for pid := range parents {
		for p, depth := parents[pid], 0; p > 0 && depth < 1000; p, depth = parents[p], depth+1 {
			if p == root {
				out = append(out, pid)
				break
			}
		}
	}
	slices.Sort(out)
	return out
}
