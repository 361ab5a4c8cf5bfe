package sandbox

import (
	"bytes"
	"os"
	"strconv"
	"strings"
)

// Self returns this process as an owner, without a run.
func Self() Owner {
	host, _ := os.Hostname()
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	start, _ := Started(os.Getpid())
	return Owner{Host: host, Boot: strings.TrimSpace(string(boot)), PID: os.Getpid(), Start: start}
}

// OrSelf returns o, with this process if it names none.
func (o Owner) OrSelf() Owner {
	if o.PID == 0 {
		self := Self()
		o.Host, o.Boot, o.PID, o.Start = self.Host, self.Boot, self.PID, self.Start
	}
	return o
}

// Started returns the start time of a process of this machine, in the unit of [Owner].Start. It
// reports false if there is no such process.
func Started(pid int) (ticks uint64, ok bool) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, false
	}
	// The name, in parentheses, may contain anything, so fields are counted from its end.
	f := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(f) < 20 {
		return 0, false
	}
	ticks, err = strconv.ParseUint(string(f[19]), 10, 64)
	return ticks, err == nil
}
