package compose

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

var testVars = Vars(func(name string) (string, bool, error) {
	v, ok := map[string]string{"IMAGE": "img:1", "EMPTY": "", "LOGS": "/host/logs", "CPUS": "2", "UNSET_CPUS": ""}[name]
	if name == "SECRET" {
		return "", false, errors.New("SECRET is not declared")
	}
	return v, ok, nil
})

func files(compose string, over ...string) fstest.MapFS {
	m := fstest.MapFS{"env/docker-compose.yaml": {Data: []byte(compose)},
		"env/Dockerfile": {Data: []byte("FROM main\n")}}
	for i := 0; i < len(over); i += 2 {
		m[over[i]] = &fstest.MapFile{Data: []byte(over[i+1])}
	}
	return m
}

var options = Options{Main: []string{"main", "client"}, Vars: testVars,
	Folders: map[string]string{"/host/logs": "logs"}}

func read(t *testing.T, compose string, over ...string) *Project {
	t.Helper()
	p, err := Read(files(compose, over...), "env/docker-compose.yaml", options)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestService(t *testing.T) {
	p := read(t, `
version: "3.8"
name: x
x-common: &common
  environment: {A: "1", B: two, NUM: 5, TRUTH: true, NULL: }
  restart: always
services:
  main:
    <<: *common
    image: ${IMAGE}
    command: sh -c 'sleep "1 2"' a\ b
    entrypoint: ["/init", "--"]
    working_dir: /app/
    user: "1000:1000"
    hostname: box
    container_name: ${IMAGE}
    cpus: ${CPUS}
    mem_limit: 512m
    mem_reservation: 256m
    shm_size: "64mb"
    pids_limit: 100
    platform: linux/amd64
    init: true
    stop_grace_period: 5s
    labels: [a=b]
    depends_on: [db, cache]
    tmpfs: /run
    ports: ["80:80"]
    volumes:
      - data:/data
      - /anon
      - type: tmpfs
        target: /t
        tmpfs: {size: 1m}
      - ${LOGS}:/logs
  db:
    image: postgres
    environment: [X=1, Y=a=b, UNSET, IMAGE]
    expose: ["5432"]
    healthcheck:
      test: pg_isready
      interval: 2s
      timeout: 3s
      start_period: 1m
      start_interval: 500ms
      retries: 7
    networks: {back: {aliases: [database], ipv4_address: 10.0.0.2}}
    deploy: {resources: {limits: {cpus: "0.5", memory: 1G, pids: 50}, reservations: {cpus: 0.25, memory: 100M}}, replicas: 1}
    stdin_open: true
  cache:
    image: redis
    healthcheck: {disable: true}
    depends_on: {db: {condition: service_healthy, restart: true, required: true}, main: {condition: service_started}}
    volumes: ["data:/data:ro"]
    cap_add: [CHOWN, CAP_SETUID]
    security_opt: ["no-new-privileges:true"]
    privileged: false
  debug:
    image: x
    profiles: [debug]
volumes: {data: , other: {driver: local}}
networks: {back: {internal: true}}
`)
	if p.Main != "main" || p.Internal || len(p.Services) != 3 {
		t.Errorf("%+v", p)
	}
	want := map[string]*Service{
		"main": {Name: "main", Image: "img:1", Dirs: []string{"/logs"}, Spec: sandbox.Spec{
			Setuid: true, Entrypoint: []string{"/init", "--"}, Cmd: []string{"sh", "-c", `sleep "1 2"`, "a b"},
			User: "1000:1000", Dir: "/app",
			Env:     map[string]string{"A": "1", "B": "two", "NUM": "5", "TRUTH": "true"},
			Aliases: []string{"box", "img:1"}, CPUs: 2, Memory: 512 << 20, Shm: 64 << 20, Pids: 100,
			Reserve: sandbox.Reserve{Memory: 256 << 20}, Platform: "linux/amd64",
			Tmpfs:   map[string]int64{"/run": 0, "/t": 1 << 20},
			Volumes: []sandbox.Volume{{Name: "data", Path: "/data"}, {Name: "main-2", Path: "/anon"}}}},
		"db": {Name: "db", Image: "postgres",
			Spec: sandbox.Spec{Setuid: true, Env: map[string]string{"X": "1", "Y": "a=b", "IMAGE": "img:1"},
				Aliases: []string{"database"},
				Health: &sandbox.Health{Test: []string{"CMD-SHELL", "pg_isready"}, Interval: 2 * time.Second,
					Timeout: 3 * time.Second, StartPeriod: time.Minute, StartInterval: time.Second / 2, Retries: 7},
				CPUs: .5, Memory: 1 << 30, Pids: 50, Reserve: sandbox.Reserve{CPUs: .25, Memory: 100 << 20}}},
		"cache": {Name: "cache", Image: "redis",
			Spec: sandbox.Spec{After: []string{"db"}, Health: &sandbox.Health{Test: []string{"NONE"}},
				Volumes: []sandbox.Volume{{Name: "data", Path: "/data", ReadOnly: true}}}},
	}
	if d := cmp.Diff(want, p.Services, cmpopts.EquateEmpty()); d != "" {
		t.Error(d)
	}
	all := strings.Join(p.Warnings, "\n")
	for _, w := range []string{"restart always is without effect", "services.main.ports: ports is without effect",
		"ipv4_address is without effect", "service cache waits for main, which begins after all others",
		"service debug has a profile, and is not started"} {
		if !strings.Contains(all, w) {
			t.Errorf("no warning %q in\n%s", w, all)
		}
	}
}

func TestBuild(t *testing.T) {
	p := read(t, `
services:
  main:
    build: {context: ., args: {A: 1, IMAGE: , GONE: }, target: final, network: none}
  api:
    build: {context: ./api, dockerfile: api.Dockerfile, args: [B=2]}
  inline:
    build: {context: .., dockerfile_inline: "FROM x\n"}
  short:
    build: ./api
    volumes: ["./api/conf:/etc/conf:ro"]
  bound:
    image: nginx
    volumes: ["./nginx.conf:/etc/nginx/nginx.conf:ro", {type: bind, source: ./api, target: /srv/$$x, read_only: true}]
`, "env/api/api.Dockerfile", "FROM api\n", "env/api/Dockerfile", "FROM short", "env/api/conf", "c", "env/nginx.conf",
		"n")
	for name, want := range map[string]Build{
		"main":   {"env", "FROM main\n", map[string]string{"A": "1", "IMAGE": "img:1"}, "final", "none"},
		"api":    {"env/api", "FROM api\n", map[string]string{"B": "2"}, "", ""},
		"inline": {".", "FROM x\n", nil, "", ""},
		"short":  {"env/api", "FROM short", nil, "", ""},
	} {
		if d := cmp.Diff(&want, p.Services[name].Build); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
	fsys := files("", "env/api/conf", "c", "env/nginx.conf", "n")
	short, err := p.Services["short"].Machine(fsys)
	if err != nil || short.Image.Dockerfile != "FROM short\nCOPY [\"conf\", \"/etc/conf\"]\n" {
		t.Errorf("%q %v", short.Image.Dockerfile, err)
	}
	bound, err := p.Services["bound"].Machine(fsys)
	if err != nil || bound.Image.Dockerfile != "FROM nginx\nCOPY [\"bind0\", \"/etc/nginx/nginx.conf\"]\nCOPY "+
		"[\"bind1\", \"/srv/\\\\$x\"]\n" {
		t.Errorf("%q %v", bound.Image.Dockerfile, err)
	}
	var names []string
	fs.WalkDir(bound.Image.Context, ".", func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			t.Error(p, err)
		}
		names = append(names, p)
		return nil
	})
	if fmt.Sprint(names) != "[. bind0 bind1 bind1/conf]" {
		t.Error("the context of copied files has", names)
	}
	if b, err := fs.ReadFile(bound.Image.Context, "bind1/conf"); string(b) != "c" {
		t.Error(string(b), err)
	}
	if _, err := fs.ReadFile(bound.Image.Context, "env/Dockerfile"); err == nil {
		t.Error("the context holds what was not asked for")
	}
}

func TestExtends(t *testing.T) {
	p := read(t, `
services:
  base: {image: b, command: [a], environment: {A: 1, B: 1}, volumes: ["v:/v"], depends_on: [side]}
  main: {extends: base, environment: [B=2, C=3], volumes: ["w:/w"], command: [c]}
  third: {extends: {service: main}, image: t}
  side: {image: s}
volumes: {v: , w: }
`)
	m, third := p.Services["main"], p.Services["third"]
	if d := cmp.Diff(map[string]string{"A": "1", "B": "2", "C": "3"}, m.Spec.Env); d != "" || m.Image != "b" ||
		len(m.Spec.Volumes) != 2 || m.Spec.Cmd[0] != "c" || m.Spec.After != nil {
		t.Errorf("%+v %s", m, d)
	}
	if third.Image != "t" || third.Spec.Env["C"] != "3" {
		t.Errorf("%+v", third)
	}
}

func TestEnvFile(t *testing.T) {
	p := read(t, "services:\n  main:\n    image: x\n    environment: {A: compose}\n    env_file: [one.env, {path: "+
		"sub/two.env, required: true}, {path: none.env, required: false}]\n",
		"env/one.env", "\ufeff# comment\nA=file\nB='lit ${IMAGE}'\r\nC=\"q ${IMAGE}\\n\" # c\nexport D = plain # "+
			"c\nE=\n\nIMAGE\n", "env/sub/two.env", "B=second\n")
	want := map[string]string{"A": "compose", "B": "second", "C": "q img:1\n", "D": "plain", "E": "", "IMAGE": "img:1"}
	if d := cmp.Diff(want, p.Services["main"].Spec.Env); d != "" {
		t.Error(d)
	}
}

// What is not on the list is refused by its name, with line and column.
func TestRefused(t *testing.T) {
	for text, want := range map[string]string{
		"privileged: true": "env/docker-compose.yaml:4:5: services.main.privileged: " +
			"privileged is not supported",
		"privileged: ${IMAGE}": "privileged is not supported",
		"cap_add: [SYS_ADMIN]": "cap_add SYS_ADMIN is not supported",
		"cap_add: [ALL]":       "cap_add ALL is not supported",
		"volumes: ['/var/run/docker.sock:/s']": "env/docker-compose.yaml:4:15: services.main.volumes[0]: " +
			"the host's path /var/run/docker.sock is not mounted",
		"volumes: ['/etc:/e:ro']":                          "the host's path /etc",
		"volumes: ['~/x:/e:ro']":                           "the host's path ~/x",
		"volumes: ['../../x:/e:ro']":                       "the host's path ../../x",
		"volumes: ['./data:/data']":                        "would be writable",
		"volumes: [{type: bind, source: /, target: /h}]":   "the host's path /",
		"volumes: [{type: npipe, source: x, target: /h}]":  "mounts of type npipe",
		"volumes: ['./:/e:shared']":                        "the option shared",
		"pid: host":                                        "pid host",
		"ipc: host":                                        "ipc host",
		"uts: host":                                        "uts host",
		"userns_mode: host":                                "userns_mode host",
		"cgroup: host":                                     "cgroup host",
		"network_mode: host":                               "network_mode host",
		"network_mode: 'container:x'":                      "network_mode container:x",
		"devices: ['/dev/kvm:/dev/kvm']":                   "devices is not supported",
		"gpus: all":                                        "gpus is not supported",
		"security_opt: ['seccomp:unconfined']":             "security_opt seccomp:unconfined",
		"security_opt: ['apparmor=unconfined']":            "security_opt apparmor=unconfined",
		"env_file: ../../x.env":                            "env_file ../../x.env lies outside",
		"env_file: /etc/environment":                       "env_file /etc/environment lies outside",
		"extends: {file: other.yaml, service: x}":          "a service of another file",
		"secrets: [a]":                                     "secrets is not supported",
		"extra_hosts: ['h:host-gateway']":                  "extra_hosts is not supported",
		"sysctls: {a: 1}":                                  "sysctls is not supported",
		"volumes_from: [x]":                                "volumes_from is not supported",
		"runtime: nvidia":                                  "runtime is not supported",
		"cgroup_parent: x":                                 "cgroup_parent is not supported",
		"read_only: true":                                  "read_only is not supported",
		"scale: 3":                                         "scale 3",
		"build: 'https://example.org/x.git'":               "is no folder of the task",
		"build: ../..":                                     "lies outside of the task's folder",
		"build: {context: ., dockerfile: ../../D}":         "lies outside of the task's folder",
		"build: {context: ., network: host}":               "build.network: network host",
		"build: {context: ., ssh: [default]}":              "build.ssh: ssh is not supported",
		"build: {context: ., secrets: [a]}":                "build.secrets: secrets is not supported",
		"build: {context: ., privileged: true}":            "build.privileged: privileged",
		"build: {context: ., additional_contexts: {a: b}}": "additional_contexts",
		"deploy: {replicas: 2}":                            "2 replicas",
		"deploy: {resources: {reservations: {devices: [{count: 1}]}}}":    "devices (GPUs)",
		"depends_on: {main: {condition: service_completed_successfully}}": "waiting until main has ended",
		"post_start: [{command: x}]":                                      "post_start is not supported",
	} {
		_, err := Read(files("services:\n  main:\n    image: x\n    "+text+"\n"), "env/docker-compose.yaml", options)
		if err == nil || !strings.Contains(err.Error(), want) || !OnlyRefused(err) {
			t.Errorf("%s: %v", text, err)
		}
	}
	for text, want := range map[string]string{
		"services: {main: {image: x}}\ninclude: [a.yaml]":                                    "include is not supported",
		"services: {main: {image: x}}\nvolumes: {a: {external: true}}":                       "external is not supported",
		"services: {main: {image: x}}\nvolumes: {a: {driver_opts: {device: /etc, o: bind}}}": "driver_opts is not supported",
		"services: {main: {image: x}}\nnetworks: {a: {external: true}}":                      "external true is not supported",
		"services: {main: {image: x}}\nnetworks: {a: {driver: macvlan}}":                     "driver macvlan is not supported",
	} {
		_, err := Read(files(text), "env/docker-compose.yaml", options)
		if err == nil || !strings.Contains(err.Error(), want) || !OnlyRefused(err) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// What is wrong with a file is no refusal.
func TestWrong(t *testing.T) {
	for text, want := range map[string]string{
		"":                                    "the file is empty",
		"[]":                                  "want a mapping",
		"services: []":                        "services: want a mapping",
		"servces: {}":                         `env/docker-compose.yaml:1:1: servces: unknown key`,
		"services: {other: {image: x}}":       "no service is called main or client",
		"services: {main: {imgae: x}}":        `services.main.imgae: unknown key`,
		"services: {main: {image: [a]}}":      "image: want a single value",
		"services: {main: {image: x}, a: {}}": "neither an image nor a build",
		"services: {main: {image: x, volumes: ['x:/y']}}":                                              `"x" is no volume of the file`,
		"services: {main: {image: x, volumes: ['./none:/y:ro']}}":                                      "file does not exist",
		"services: {main: {image: x, volumes: ['a:b:c:d']}}":                                           "want SOURCE:TARGET",
		"services: {main: {image: x, volumes: ['/']}}":                                                 "the root cannot be a volume",
		"services: {main: {image: x, networks: [n]}}":                                                  `"n" is no network of the file`,
		"services: {main: {image: x, depends_on: [n]}}":                                                "depends on n, and there is none",
		"services: {main: {image: x, mem_limit: lots}}":                                                "want a size",
		"services: {main: {image: x, cpus: -1}}":                                                       "want a number",
		"services: {main: {image: x, command: 'a \"b'}}":                                               "a quotation mark is not closed",
		"services: {main: {image: x, working_dir: a}}":                                                 "want an absolute path",
		"services: {main: {image: x, healthcheck: {test: [a]}}}":                                       "begins with CMD",
		"services: {main: {image: x, healthcheck: {test: a, interval: 5}}}":                            "want a duration",
		"services: {main: {image: x, extends: y}}":                                                     `there is no service "y"`,
		"services: {main: {extends: a}, a: {extends: main}}":                                           "extends itself",
		"services: {main: {image: x}, a: {image: x, depends_on: [b]}, b: {image: x, depends_on: [a]}}": "waits for itself",
		"services: {main: {build: ./none}}":                                                            "file does not exist",
		"services: {main: {image: $}}":                                                                 "a $ that names no variable",
		"services: {main: {image: '${SECRET}'}}":                                                       "SECRET is not declared",
		"services: {main: {image: '${NO:?give it}'}}":                                                  "the variable NO is not set: give it",
		"services: {main: {image: x}}\n---\na: b":                                                      "a second document",
		"services: {main: {image: *x}}":                                                                "no anchor &x",
		"services: {main: &a {image: x, labels: *a}}":                                                  "stands inside what it names",
		"services: {main: {image: x, image: y}}":                                                       "env/docker-compose.yaml:1:",
		"services: {main: {<<: 5, image: x}}":                                                          "<< wants a mapping",
		"services: {main: {image: \"\xff\"}}":                                                          "not UTF-8",
		"services: {main: !reset {image: x}}":                                                          "the tag !reset is not supported",
		"a: " + strings.Repeat("[", 100) + strings.Repeat("]", 100):                                    "nested deeper",
		strings.Repeat("- ", 1000) + "a":                                                               "nested deeper",
		"# " + strings.Repeat("x", maxSize):                                                            "larger than 256 KiB",
		"services: {main: {image: x, environment: {A: [1]}}}":                                          "want a single value",
		"services: {'a b': {image: x}}":                                                                "is no name of a service",
	} {
		_, err := Read(files(text), "env/docker-compose.yaml", options)
		if err == nil || !strings.Contains(err.Error(), want) || OnlyRefused(err) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// Aliases of aliases do not blow a file up.
func TestManyServices(t *testing.T) {
	text := func(n int) string {
		s := "services:\n  main: {image: a}\n"
		for i := range n - 1 {
			s += fmt.Sprintf("  s%d: {image: a}\n", i)
		}
		return s
	}
	if p := read(t, text(maxServices)); len(p.Warnings) > 0 {
		t.Errorf("%q", p.Warnings)
	}
	var refused *Refused
	_, err := Read(files(text(maxServices+1)), "env/docker-compose.yaml", options)
	if !errors.As(err, &refused) || !strings.Contains(err.Error(),
		":2:3: services: 65 services are too many; a task may have 64") {
		t.Errorf("%v", err)
	}
}

func TestBomb(t *testing.T) {
	var b strings.Builder
	b.WriteString("x-a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n")
	for i := 1; i < 12; i++ {
		fmt.Fprintf(&b, "x-a%d: &a%d [%s]\n", i, i,
			strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i-1), 10), ", "))
	}
	b.WriteString("services: {main: {image: x}}\n")
	began := time.Now()
	_, err := Read(files(b.String()), "env/docker-compose.yaml", options)
	if err == nil || !strings.Contains(err.Error(), "grows beyond") {
		t.Error(err)
	}
	t.Log(time.Since(began))
	long := "x-a: &a " + strings.Repeat("x", 200<<10) + "\nx-b: [" + strings.Repeat("*a, ", 100) +
		"]\nservices: {main: {image: x}}\n"
	if _, err := Read(files(long), "env/docker-compose.yaml", options); err == nil ||
		!strings.Contains(err.Error(), "texts grow beyond") {
		t.Error(err)
	}
}

func TestExpand(t *testing.T) {
	for in, want := range map[string]string{
		"a": "a", "$IMAGE": "img:1", "${IMAGE}": "img:1", "x${IMAGE}y$IMAGE.z": "ximg:1yimg:1.z", "$$IMAGE": "$IMAGE",
		"$${IMAGE}": "${IMAGE}", "${NO}": "", "${NO-d}": "d", "${NO:-d}": "d",
		"${EMPTY-d}": "", "${EMPTY:-d}": "d", "${IMAGE:-d}": "img:1", "${IMAGE:+set}": "set", "${IMAGE+set}": "set",
		"${EMPTY:+set}": "", "${EMPTY+set}": "set", "${NO+set}": "",
		"${NO:-${IMAGE}}": "img:1", "${NO:-a ${NO:-b} }": "a b ", "${IMAGE:-${SECRET}}": "img:1", "${SECRET:-d}": "d",
		"${IMAGE:?no}": "img:1", "a}b": "a}b", "${NO:-$$}": "$",
	} {
		if got, err := Expand(in, testVars); got != want || err != nil {
			t.Errorf("%q: %q, %v", in, got, err)
		}
	}
	for in, want := range map[string]string{
		"$": "names no variable", "${": "names no variable", "${}": "names no variable", "${IMAGE": "not closed",
		"${IMAGE:-x": "not closed", "${NO:?}": "it is required", "${NO?why}": "why",
		"${EMPTY:?}": "it is required", "${IMAGE!}": "no form of a variable", "$1": "names no variable",
		"${SECRET}": "not declared", "${NO:-${SECRET}}": "not declared",
		strings.Repeat("${A:-", 20) + strings.Repeat("}", 20): "nested deeper",
	} {
		if got, err := Expand(in, testVars); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %q, %v", in, got, err)
		}
	}
}

// Folders of the harness are made, or shared where several have them; networks that are internal,
// or none, cut main off.
func TestFoldersAndNetworks(t *testing.T) {
	p := read(t, "services:\n  client: {image: x, volumes: ['${LOGS}:/logs']}\n  side: {image: y, volumes: "+
		"['${LOGS}:/var/logs'], network_mode: 'service:client'}\n")
	if p.Main != "client" || p.Services["client"].Dirs != nil ||
		!cmp.Equal(p.Services["side"].Spec.Volumes, []sandbox.Volume{{Name: "logs", Path: "/var/logs"}}) {
		t.Errorf("%+v %+v", p.Services["client"], p.Services["side"])
	}
	for text, want := range map[string]bool{
		"services: {main: {image: x, networks: [a]}}\nnetworks: {a: {internal: true}}":                true,
		"services: {main: {image: x, networks: [a, b]}}\nnetworks: {a: {internal: true}, b: }":        false,
		"services: {main: {image: x, networks: [default]}}\nnetworks: {a: {internal: true}}":          false,
		"services: {main: {image: x, network_mode: none}}":                                            true,
		"services: {main: {image: x}, s: {image: y, networks: [a]}}\nnetworks: {a: {internal: true}}": false,
	} {
		if p := read(t, text); p.Internal != want {
			t.Errorf("%s: %v", text, p.Internal)
		}
	}
	o := options
	o.Main, o.Optional = []string{"main"}, true
	if p, err := Read(files("services: {side: {image: x, depends_on: [main]}}"), "env/docker-compose.yaml",
		o); err != nil || p.Main != "" {
		t.Error(p, err)
	}
	o.Optional, o.First = false, true
	if p, err := Read(files("services: {b: {image: x}, a: {image: x}}"), "env/docker-compose.yaml", o); err != nil ||
		p.Main != "b" {
		t.Error(p, err)
	}
}

func FuzzRead(f *testing.F) {
	for _, s := range []string{"services: {main: {image: x}}",
		"services:\n  main:\n    <<: &a {image: $X}\n    command: \"a 'b'\"\n", "a: &a [*a]",
		"services: {main: {build: {context: .}, volumes: [{type: bind}]}}",
		"services: {main: {extends: main}}", "- - - ? a",
		"services: {main: {environment: [A, B=c], env_file: Dockerfile, healthcheck: {test: x}}}"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := Read(files(string(text)), "env/docker-compose.yaml", options)
		if (p == nil) == (err == nil) {
			t.Errorf("%v, %v", p, err)
		}
	})
}
