package blob

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv("BLOB_TEST_CRASH"); dir != "" {
		crashChild(dir)
	}
	os.Exit(m.Run())
}

// crashChild puts and syncs blobs until it is killed, and prints what a Sync has acknowledged.
func crashChild(dir string) {
	s, err := Open(dir, Options{})
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for {
				var sums []string
				for range rand.IntN(4) + 1 {
					sum, _, err := s.Put(context.Background(),
						strings.NewReader(strings.Repeat(fmt.Sprint(rand.Uint64()), rand.IntN(30_000))))
					if err != nil {
						fmt.Println("error", err)
						os.Exit(1)
					}
					sums = append(sums, sum)
				}
				if err := s.Sync(context.Background()); err != nil {
					fmt.Println("error", err)
					os.Exit(1)
				}
				mu.Lock()
				fmt.Println(strings.Join(sums, "\n"))
				mu.Unlock()
			}
		})
	}
	wg.Wait()
}

// After a kill, everything acknowledged exists, every blob matches its name, and no other file is
// left.
func TestKill(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "blobs")
	acked := map[string]bool{}
	for range 6 {
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), "BLOB_TEST_CRASH="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		in := bufio.NewReader(out)
		told := rand.IntN(40)
		for n := 0; ; n++ {
			if n == told {
				time.Sleep(time.Duration(rand.IntN(3000)) * time.Microsecond)
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
			line, err := in.ReadString('\n')
			if err == io.EOF {
				break
			}
			if sum := strings.TrimSpace(line); valid(sum) {
				acked[sum] = true
			} else {
				t.Errorf("child: %s", line)
			}
		}
		cmd.Wait()
	}
	s := open(t, dir, Options{})
	for sum := range acked {
		get(t, s, sum)
	}
	for _, name := range files(t, dir) {
		sum := strings.ReplaceAll(name, string(filepath.Separator), "")
		if !valid(sum) {
			t.Errorf("left: %s", name)
			continue
		}
		get(t, s, sum) // Verify is on
	}
	t.Logf("%d acknowledged", len(acked))
}
