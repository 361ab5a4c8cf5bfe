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

// driver is a driver in memory, so that the examples run anywhere; local.New and docker.New are
// made in the same way.
func driver() sandbox.Driver { return fake.New(fake.Options{}) }

// Files go in, a command runs, and its exit code is a result: only an error means that the sandbox
// did not do its work.
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
		Args: []string{"sh", "-c", "cat in.txt > out.txt; cat in.txt; exit 3"}, Stdout: os.Stdout, Timeout: time.Minute,
	})
	if err != nil {
		log.Fatal(err)
	}
	out, err := sandbox.ReadFile(ctx, sb, "/workspace/out.txt", 1<<20)
	fmt.Printf("exit code %d, wrote %q, %v\n", exit.Code, out, err)
	// Output:
	// hello
	// exit code 3, wrote "hello\n", <nil>
}

// What only some drivers can do is asked for.
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

// A driver says what it cannot do, and never does silently less.
func ExampleUnsupported() {
	_, err := driver().Create(context.Background(), sandbox.Spec{Platform: "windows/amd64"})
	var u *sandbox.Unsupported
	if errors.As(err, &u) {
		fmt.Println("another driver may know", u.What)
	}
	// Output: another driver may know platform windows/amd64
}
