package docker

import (
	"crypto/rand"
	"encoding/hex"
	"strconv"
	"sync"

	"github.com/evalrun/evalrun/runtime/image"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// Labels of everything that we make for a sandbox.
const (
	labelSandbox = "evalrun.sandbox" // its ID
	labelService = "evalrun.service" // name of the sidecar
	labelProcess = "evalrun.process" // of evalrun, like no other
	labelRun     = "evalrun.run"
	labelTrial   = "evalrun.trial"
	labelAttempt = "evalrun.attempt"
	labelRole    = "evalrun.role"
	labelHost    = "evalrun.host"
	labelBoot    = "evalrun.boot"
	labelPID     = "evalrun.pid"
	labelStart   = "evalrun.start"
)

// prefix of the names of containers, networks and volumes.
const prefix = "evalrun-"

// process is the mark of this process.
var process = sync.OnceValue(func() string { return random(8) })

func random(n int) string {
	b := make([]byte, n)
	rand.Read(b)
	return hex.EncodeToString(b)
}

// labels say whose something is. All of them are set, empty ones too: a container has those labels
// of its image that it has not itself, and an image may say anything.
func labels(id string, o sandbox.Owner) map[string]string {
	m := map[string]string{
		labelSandbox: id, labelService: "", labelProcess: process(), labelRun: o.Run, labelTrial: o.Trial,
		labelAttempt: strconv.Itoa(o.Attempt),
		labelRole:    o.Role, labelHost: o.Host, labelBoot: o.Boot, labelPID: strconv.Itoa(o.PID),
		labelStart: strconv.FormatUint(o.Start, 10),
	}
	for _, l := range image.Labels {
		m[l] = ""
	}
	return m
}

// ownerOf is the other way around.
func ownerOf(m map[string]string) sandbox.Owner {
	o := sandbox.Owner{Run: m[labelRun], Trial: m[labelTrial], Role: m[labelRole], Host: m[labelHost],
		Boot: m[labelBoot]}
	o.Attempt, _ = strconv.Atoi(m[labelAttempt])
	o.PID, _ = strconv.Atoi(m[labelPID])
	o.Start, _ = strconv.ParseUint(m[labelStart], 10, 64)
	return o
}

// known are the sandboxes of this process, of all of its drivers, from before their first container
// until nothing of them is left.
var known sync.Map // ID → true
