package local

import (
	"context"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

// busy is the processor time of the whole machine, so that nothing hides. It is of use only when
// nothing else runs.
func busy() time.Duration {
	b, _ := os.ReadFile("/proc/stat")
	f := strings.Fields(strings.SplitN(string(b), "\n", 2)[0])
	var n int
	for i, s := range f[1:] {
		if i == 3 || i == 4 || i > 7 { // idle, iowait, guests
			continue
		}
		v, _ := strconv.Atoi(s)
		n += v
	}
	return time.Duration(n) * 10 * time.Millisecond
}

func drivers(b *testing.B, f func(b *testing.B, d *Driver)) {
	b.Run("local", func(b *testing.B) { f(b, require(b)) })
	b.Run("none", func(b *testing.B) {
		d := NewUnisolated()
		b.Cleanup(func() { d.Close() })
		f(b, d)
	})
}

var hello = sandbox.Command{Args: []string{"/bin/true"}}

func run(b *testing.B, sb sandbox.Sandbox, c sandbox.Command) {
	if x, err := sb.Exec(context.Background(), c); err != nil || x.Code != 0 {
		b.Fatalf("%+v %v", x, err)
	}
}

// BenchmarkBare is the floor of all others: a command without us.
func BenchmarkBare(b *testing.B) {
	for _, args := range [][]string{{"/bin/true"}, {"/usr/bin/python3", "-c", "pass"}} {
		b.Run(args[0][strings.LastIndexByte(args[0], '/')+1:], func(b *testing.B) {
			for b.Loop() {
				exec.Command(args[0], args[1:]...).Run()
			}
		})
	}
}

// BenchmarkStart is a sandbox from Create to the end of its first command.
func BenchmarkStart(b *testing.B) {
	drivers(b, func(b *testing.B, d *Driver) {
		for b.Loop() {
			sb, err := d.Create(context.Background(), sandbox.Spec{Owner: sandbox.Self()})
			if err != nil {
				b.Fatal(err)
			}
			run(b, sb, hello)
			b.StopTimer()
			sb.Close()
			b.StartTimer()
		}
	})
}

func BenchmarkExec(b *testing.B) {
	drivers(b, func(b *testing.B, d *Driver) {
		sb := create(b, d, sandbox.Spec{})
		for b.Loop() {
			run(b, sb, hello)
		}
	})
}

func BenchmarkClose(b *testing.B) {
	drivers(b, func(b *testing.B, d *Driver) {
		for b.Loop() {
			b.StopTimer()
			sb := create(b, d, sandbox.Spec{})
			b.StartTimer()
			sb.Close()
		}
	})
}

// BenchmarkTrial is what a simple trial does: a sandbox, a file, a run of python, and the end. Two
// at once, as there are two cores; beside it the same without us.
func BenchmarkTrial(b *testing.B) {
	const workers = 2
	both := func(b *testing.B, f func()) {
		m0 := busy()
		var wg sync.WaitGroup
		n := make(chan struct{})
		for range workers {
			wg.Go(func() {
				for range n {
					f()
				}
			})
		}
		for range b.N {
			n <- struct{}{}
		}
		close(n)
		wg.Wait()
		b.ReportMetric(float64((busy()-m0).Microseconds())/float64(b.N), "µs-cpu/op")
	}
	b.Run("bare", func(b *testing.B) {
		both(b, func() { exec.Command("/usr/bin/python3", "-c", "print(1)").Run() })
	})
	src := fstest.MapFS{"main.py": {Data: []byte("print(1)\n"), Mode: 0o644}}
	drivers(b, func(b *testing.B, d *Driver) {
		if err := d.Probe(context.Background()); err != nil {
			b.Skip(err)
		}
		both(b, func() {
			sb, err := d.Create(context.Background(), sandbox.Spec{Owner: sandbox.Self()})
			if err != nil {
				b.Fatal(err)
			}
			if err := sb.Put(context.Background(), "/workspace", src); err != nil {
				b.Fatal(err)
			}
			run(b, sb, sandbox.Command{Args: []string{"/usr/bin/python3", "main.py"}, Dir: "/workspace"})
			sb.Close()
		})
	})
}

// BenchmarkMemory holds 200 sandboxes at once and reports what one of them takes: the share of
// memory (PSS) of its process 1, and the growth of ours.
func BenchmarkMemory(b *testing.B) {
	drivers(b, func(b *testing.B, d *Driver) {
		const many = 200
		for b.Loop() {
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			boxes := make([]sandbox.Sandbox, many)
			var wg sync.WaitGroup
			for i := range boxes {
				wg.Go(func() {
					boxes[i] = create(b, d, sandbox.Spec{})
					run(b, boxes[i], hello)
				})
			}
			wg.Wait()
			runtime.GC()
			runtime.ReadMemStats(&after)
			var kb int
			for _, sb := range boxes {
				text, _ := os.ReadFile("/proc/" + strconv.Itoa(sb.(*box).p.pid) + "/smaps_rollup")
				for line := range strings.Lines(string(text)) {
					if f := strings.Fields(line); len(f) > 1 && f[0] == "Pss:" {
						n, _ := strconv.Atoi(f[1])
						kb += n
					}
				}
			}
			ours := float64(after.HeapInuse+after.StackInuse) - float64(before.HeapInuse+before.StackInuse)
			b.ReportMetric(float64(kb)/1024/many, "MB-inside/box")
			b.ReportMetric(ours/(1<<20)/many, "MB-ours/box")
			for _, sb := range boxes {
				sb.Close()
			}
		}
	})
}

// BenchmarkShell is one trivial command in a persistent shell.
func BenchmarkShell(b *testing.B) {
	sb := shellBox(b)
	benchShell(b, sb, "0", ":")
	for b.Loop() {
		benchShell(b, sb, "0", ":")
	}
}

// BenchmarkShellStart starts a session.
func BenchmarkShellStart(b *testing.B) {
	sb := shellBox(b)
	for b.Loop() {
		benchShell(b, sb, "0", ":")
		if _, err := sb.Shell(b.Context(), sandbox.ShellCall{Shell: "0", Op: sandbox.ShellReset}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkShellOutput sends 100 MB through the limit of a call, and to nobody.
func BenchmarkShellOutput(b *testing.B) {
	for name, to := range map[string]string{"limit": "", "null": " > /dev/null"} {
		b.Run(name, func(b *testing.B) {
			sb := shellBox(b)
			benchShell(b, sb, "0", "yes 'some text of a line, as programs print it' | head -c 100000000 > /tmp/big")
			b.SetBytes(100_000_000)
			for b.Loop() {
				benchShell(b, sb, "0", "cat /tmp/big"+to)
			}
		})
	}
}

// BenchmarkShells starts 100 sessions in one sandbox and runs a command in each.
func BenchmarkShells(b *testing.B) {
	for b.Loop() {
		sb := shellBox(b)
		for i := range 100 {
			benchShell(b, sb, strconv.Itoa(i), ":")
		}
	}
}

func shellBox(b *testing.B) *box {
	d := New()
	b.Cleanup(func() { d.Close() })
	sb, err := d.Create(b.Context(), sandbox.Spec{Dir: "/work", Pids: 1000})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { sb.Close() })
	return sb.(*box)
}

func benchShell(b *testing.B, sb *box, name, text string) {
	x, err := sb.Shell(b.Context(), sandbox.ShellCall{Shell: name, Text: text, Limit: 30_000, FullLimit: -1})
	if err != nil || x.Code != 0 || x.End != sandbox.ShellCompleted {
		b.Fatal(x, err)
	}
}
