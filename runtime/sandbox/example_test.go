package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"testing/fstest"
	"time"

	"github.com/evalrun/evalrun/runtime/fake"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// driver returns a driver in memory, so that the examples run anywhere. Its only command is a Go
// function; the commands of local.New and docker.New are those of the system.
func driver() sandbox.Driver {
	return fake.New(fake.Options{Commands: map[string]fake.Func{"copy": func(_ context.Context, p *fake.Proc) int {
		b, err := p.ReadFile(p.Args[1])
		if err == nil {
			err = p.WriteFile(p.Args[2], b, 0o644)
		}
		if err != nil {
			fmt.Fprintln(p.Stderr, err)
			return 1
		}
		fmt.Fprintln(p.Stdout, "copied", len(b), "bytes")
		return 0
	}}})
}

// Files are put into the sandbox, and a command runs there. Its exit code is a result; an error
// means that the sandbox itself failed.
func Example() {
	ctx := context.Background()
	sb, err := driver().Create(ctx, sandbox.Spec{Dir: "/workspace", Memory: 256 << 20})
	if err != nil {
		log.Fatal(err)
	}
	defer sb.Close()

	if err := sb.Put(ctx, "/workspace", fstest.MapFS{"in.txt": {Data: []byte("hello\n"), Mode: 0o644}}); err != nil {
		log.Fatal(err)
	}
	exit, err := sb.Exec(ctx, sandbox.Command{
		Args: []string{"copy", "in.txt", "out.txt"}, Stdout: os.Stdout, Timeout: time.Minute,
	})
	if err != nil {
		log.Fatal(err)
	}
	out, err := sandbox.ReadFile(ctx, sb, "/workspace/out.txt", 1<<20)
	fmt.Printf("exit code %d, wrote %q, %v\n", exit.Code, out, err)
	// Output:
	// copied 6 bytes
	// exit code 0, wrote "hello\n", <nil>
}

// As asks for an ability that only some drivers have.
func ExampleAs() {
	sb, err := driver().Create(context.Background(), sandbox.Spec{})
	if err != nil {
		log.Fatal(err)
	}
	defer sb.Close()
	if _, ok := sandbox.As[sandbox.Rewirer](sb); !ok {
		fmt.Println("its network policy stays as it is")
	}
	// Output: its network policy stays as it is
}

// A driver refuses what it does not support.
func ExampleUnsupported() {
	_, err := driver().Create(context.Background(), sandbox.Spec{Platform: "windows/amd64"})
	var u *sandbox.Unsupported
	if errors.As(err, &u) {
		fmt.Println("another driver may know", u.What)
	}
	// Output: another driver may know platform windows/amd64
}
