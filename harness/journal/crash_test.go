package journal

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/evalrun/evalrun/harness/record"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv("JOURNAL_TEST_CRASH"); dir != "" {
		crashChild(dir, os.Getenv("JOURNAL_TEST_FIRST"))
	}
	os.Exit(m.Run())
}

// A choppedFile writes in small pieces, so that a kill leaves an incomplete line more often.
type choppedFile struct{ file }

func (f choppedFile) WriteAt(p []byte, off int64) (int, error) {
	for n := 0; n < len(p); {
		k, err := f.file.WriteAt(p[n:min(len(p), n+100)], off+int64(n))
		n += k
		if err != nil {
			return n, err
		}
	}
	return len(p), nil
}

// crashChild recovers the journal and then writes attempts until it is killed. It prints what a
// Sync has acknowledged.
func crashChild(dir, first string) {
	j, err := Open(dir, Options{Ballast: -1, SegmentBytes: 30_000, open: func(name string) (file, error) {
		f, err := openFile(name)
		return choppedFile{f}, err
	}})
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	if len(j.Recovered().Damages) > 0 {
		fmt.Println("error", strings.Join(j.Recovered().Warnings(), "; "))
		os.Exit(1)
	}
	var mu sync.Mutex
	say := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Printf(format+"\n", args...)
	}
	ctx := context.Background()
	base, _ := strconv.Atoi(first)
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for k := 0; ; k++ {
				trial := fmt.Sprintf("%020x", base+k*4+w)
				err := j.Append(ctx, begin(trial))
				for n := 0; err == nil && n < 50; n++ {
					e := event(trial, n)
					e.Data = fmt.Appendf(nil, `{"id":%d,"text":"%s"}`, n, strings.Repeat("x", n*13%400))
					if err = j.Append(ctx, e); err == nil && n%(w+2) == 0 {
						if err = j.Sync(ctx); err == nil {
							say("%s %d", trial, n+1)
						}
					}
				}
				if err == nil {
					err = j.Append(ctx, verdictOf(trial))
				}
				if err == nil {
					err = j.Sync(ctx)
				}
				if err != nil {
					say("error %v", err)
					os.Exit(1)
				}
				say("%s %d", trial, -50)
			}
		})
	}
	wg.Wait()
}

// A process is killed at random moments, many times on the same journal. Everything acknowledged as
// durable exists, nothing exists that was not written, and each attempt's events have no gaps.
func TestKill(t *testing.T) {
	rounds := 12
	if s := os.Getenv("EVALRUN_TEST_KILLS"); s != "" {
		rounds, _ = strconv.Atoi(s)
	}
	seed := rand.Uint64()
	t.Logf("seed %d, %d kills", seed, rounds)
	rnd := rand.New(rand.NewPCG(seed, 2))
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "journal")
	var acked sync.Map
	for round := range rounds {
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), "JOURNAL_TEST_CRASH="+dir,
			fmt.Sprintf("JOURNAL_TEST_FIRST=%d", 1_000_000*(round+1)))
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		in := bufio.NewReader(out)
		told := rnd.IntN(150) // wait for that many acknowledgements, and a moment longer
		for n := 0; ; n++ {
			if n == told {
				time.Sleep(time.Duration(rnd.IntN(3000)) * time.Microsecond)
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
			line, err := in.ReadString('\n')
			if err == io.EOF {
				break
			}
			trial, num, _ := strings.Cut(strings.TrimSpace(line), " ")
			k, nerr := strconv.Atoi(num)
			if err != nil || nerr != nil {
				t.Errorf("child: %s", line)
				continue
			}
			acked.Store(trial, k)
		}
		cmd.Wait()
		if t.Failed() {
			return
		}
	}
	j, err := Open(dir, Options{Ballast: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	check(t, dir, &acked)
	// Open attempts can be read back, and match the scan.
	state := j.Recovered().State
	open := map[string]int{}
	for e := range Scan(dir) {
		open[e.Trial]++
		if e.Kind == record.KindVerdict {
			delete(open, e.Trial)
		}
	}
	for trial, want := range open {
		n := 0
		for _, err := range j.Attempt(t.Context(), trial, 1) {
			if err != nil {
				t.Fatal(err)
			}
			n++
		}
		if s, ok := state.Trial(trial); n != want || !ok || s.Open != 1 {
			t.Errorf("trial %s: %d entries read back, want %d; %+v", trial, n, want, s)
		}
	}
	if len(open) == 0 {
		t.Log("no attempt was open at the last kill")
	}
}
