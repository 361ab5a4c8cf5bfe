package docker

import (
	"cmp"
	"maps"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"

	"github.com/evalrun/evalrun/internal/execproto"
	"github.com/evalrun/evalrun/runtime/executor"
	"github.com/evalrun/evalrun/runtime/image"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// capabilities of root inside, and so of commands.
var capabilities = []string{"CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETFCAP",
	"NET_BIND_SERVICE", "SYS_CHROOT"}

// ownPids is the number of processes that process 1 and its supervisors may use beside a spec's
// Pids.
const ownPids = 40

// Defaults fills in a spec's zero limits.
func Defaults(s *sandbox.Spec) {
	s.Memory = cmp.Or(s.Memory, DefaultMemory)
	s.Pids = cmp.Or(s.Pids, DefaultPids)
	s.Orphan = cmp.Or(s.Orphan, DefaultOrphan)
}

// A plan describes a container to create.
type plan struct {
	spec    *sandbox.Spec
	info    image.Info
	labels  map[string]string
	join    string            // name of the container whose network it joins; "": one of its own
	bridge  string            // name of the session's bridge; "": no network of the engine
	hosts   []string          // "name:address", for /etc/hosts
	volumes map[string]string // the engine's names of the session's volumes
	mount   string            // path of the executor to mount; "": it is copied
	quota   bool              // the engine can limit the disk
	cpus    int               // the engine's CPUs, since it refuses a higher limit; 0: not known
	tun     bool              // it has a network interface
	here    bool              // which is opened by this process, not by process 1
	env     map[string]string // for all containers of a session; the spec's variables come after it
}

// config returns the configuration of process 1, which is ours. What the image and the spec say
// about processes is sent to the executor.
func (p *plan) config() *container.Config {
	c := &container.Config{
		Image: p.info.ID, User: "0:0", WorkingDir: "/", Entrypoint: []string{toolPath, executor.Container},
		Labels: p.labels,
		// Disable the image's variables that have a meaning for a Go program.
		Env:         []string{"GODEBUG=", "GOGC=", "GOMAXPROCS=2", "GOMEMLIMIT=", "GOTRACEBACK=crash"},
		OpenStdin:   true, // without StdinOnce: its owner may reattach
		AttachStdin: true, AttachStdout: true, AttachStderr: true,
		Healthcheck: &container.HealthConfig{Test: []string{"NONE"}},
	}
	if p.join == "" {
		c.Hostname = Hostname
	}
	return c
}

func (p *plan) hostConfig() *container.HostConfig {
	s := p.spec
	no, pids := false, int64(s.Pids+ownPids)
	cpus := s.CPUs
	if p.cpus > 0 {
		cpus = min(cpus, float64(p.cpus))
	}
	h := &container.HostConfig{
		NetworkMode: "none",
		LogConfig:   container.LogConfig{Type: "none"}, // the channel is stdout
		CapDrop:     []string{"ALL"}, CapAdd: slices.Clone(capabilities),
		CgroupnsMode: "private", IpcMode: "private",
		Init:    &no,
		ShmSize: s.Shm,
		Resources: container.Resources{
			Memory: s.Memory, MemorySwap: s.Memory, PidsLimit: &pids, NanoCPUs: int64(cpus * 1e9),
			CPUShares: sandbox.CPUShare,
		},
	}
	if p.tun && !p.here {
		h.CapAdd = append(h.CapAdd, "NET_ADMIN")
		h.Devices = []container.DeviceMapping{
			{PathOnHost: "/dev/net/tun", PathInContainer: "/dev/net/tun", CgroupPermissions: "rw"}}
	}
	if s.Trace {
		h.CapAdd = append(h.CapAdd, "SYS_PTRACE")
	}
	if len(h.CapAdd) > len(capabilities) {
		// For process 1 (and tracers) only. It needs SETPCAP to remove them from commands for good.
		h.CapAdd = append(h.CapAdd, "SETPCAP")
	}
	if !s.Setuid {
		h.SecurityOpt = []string{"no-new-privileges"}
	}
	if p.quota && s.Disk > 0 {
		h.StorageOpt = map[string]string{"size": strconv.FormatInt(s.Disk, 10)}
	}
	switch {
	case p.join != "":
		h.NetworkMode = container.NetworkMode("container:" + p.join)
	default:
		if p.bridge != "" {
			h.NetworkMode = container.NetworkMode(p.bridge)
		}
		h.ExtraHosts = p.hosts
		// Otherwise the engine copies the host's own.
		h.DNS, h.DNSSearch, h.DNSOptions = []netip.Addr{netip.MustParseAddr("127.0.0.1")}, []string{"."}, []string{}
		if p.here {
			h.DNS = []netip.Addr{netip.MustParseAddr(execproto.TunServer4)}
		}
	}
	if len(s.Tmpfs) > 0 {
		h.Tmpfs = map[string]string{}
		for dir, size := range s.Tmpfs {
			o := "rw,exec,nosuid,nodev,mode=1777"
			if size > 0 {
				o += ",size=" + strconv.FormatInt(size, 10)
			}
			h.Tmpfs[path.Clean("/"+dir)] = o
		}
	}
	if p.mount != "" {
		h.Mounts = append(h.Mounts, mount.Mount{Type: mount.TypeBind, Source: p.mount, Target: toolPath,
			ReadOnly: true})
	}
	for _, v := range s.Volumes {
		h.Mounts = append(h.Mounts, mount.Mount{Type: mount.TypeVolume, Source: p.volumes[v.Name], Target: v.Path,
			ReadOnly: v.ReadOnly})
	}
	return h
}

// environ returns the variables of commands: the image's and the spec's, none of this process.
func (p *plan) environ() []string {
	env := map[string]string{"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOSTNAME": Hostname}
	for _, kv := range p.info.Config.Env {
		if k, v, ok := strings.Cut(kv, "="); ok && k != "" {
			env[k] = v
		}
	}
	maps.Copy(env, p.env)
	maps.Copy(env, p.spec.Env)
	out := make([]string, 0, len(env))
	for _, k := range slices.Sorted(maps.Keys(env)) {
		out = append(out, k+"="+env[k])
	}
	return out
}

// entry returns the command line of ENTRYPOINT, or nil if there is none or (except for services) if
// it would only wait. As in docker, an ENTRYPOINT of the spec replaces the image's CMD too.
func (p *plan) entry(service bool) []string {
	point, cmd := p.spec.Entrypoint, p.spec.Cmd
	if point == nil {
		point = p.info.Config.Entrypoint
		if cmd == nil && (service || len(point) > 0) {
			cmd = p.info.Config.Cmd
		}
	}
	line := slices.Concat(point, cmd)
	if !service && onlyWaits(line) {
		return nil
	}
	return line
}

// onlyWaits reports whether a command line only keeps a container from ending, which our containers
// do not need. Such a process would survive all that the agent does, and be a place to hide code
// in.
func onlyWaits(line []string) bool {
	if len(line) == 3 && line[1] == "-c" && slices.Contains([]string{"sh", "bash", "/bin/sh", "/bin/bash"}, line[0]) {
		line = strings.Fields(line[2])
	}
	switch strings.Join(line, " ") {
	case "sleep infinity", "exec sleep infinity", "sleep inf", "tail -f /dev/null", "tail -F /dev/null":
		return true
	}
	return false
}

func (p *plan) health() *sandbox.Health {
	if p.spec.Health != nil {
		return p.spec.Health
	}
	return p.info.Config.Health
}
