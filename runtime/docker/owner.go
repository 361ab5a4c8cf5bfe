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
	labelProcess = "evalrun.process" // ID of the evalrun process
	labelRun     = "evalrun.run"
	labelTrial   = "evalrun.trial"
	labelAttempt = "evalrun.attempt"
	labelRole    = "evalrun.role"
	labelHost    = "evalrun.host"
	labelBoot    = "evalrun.boot"
	labelPID     = "evalrun.pid"
	labelStart   = "evalrun.start"
)

// prefix is the prefix of the names of containers, networks and volumes.
const prefix = "evalrun-"

// process is the ID of this process.
var process = sync.OnceValue(func() string { return random(8) })

func random(n int) string {
	b := make([]byte, n)
	rand.Read(b)
	return hex.EncodeToString(b)
}

// labels returns the labels of an owner. All of them are set, empty ones too: a container inherits
// the labels of its image that it does not set itself, and an image is hostile.
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

// ownerOf returns the owner of labels.
func ownerOf(m map[string]string) sandbox.Owner {
	o := sandbox.Owner{Run: m[labelRun], Trial: m[labelTrial], Role: m[labelRole], Host: m[labelHost],
		Boot: m[labelBoot]}
	o.Attempt, _ = strconv.Atoi(m[labelAttempt])
	o.PID, _ = strconv.Atoi(m[labelPID])
	o.Start, _ = strconv.ParseUint(m[labelStart], 10, 64)
	return o
}

// known are the sandboxes of this process, of all its drivers, from before their first container
// until all objects are removed.
var known sync.Map // ID → true
