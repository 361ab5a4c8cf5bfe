package pool_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/evalrun/evalrun/runtime/fake"
	"github.com/evalrun/evalrun/runtime/pool"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// Room is taken for all machines of a session at once, so that no session waits while it holds
// some.
func ExamplePool_Acquire() {
	ctx := context.Background()
	p := pool.New(pool.Options{Memory: 2 << 30}, fake.New(fake.Options{}))
	defer p.Close()

	specs := []sandbox.Spec{{Memory: 1 << 30}, {Memory: 512 << 20}}
	lease, err := p.Acquire(ctx, specs)
	if err != nil {
		log.Fatal(err)
	}
	for _, spec := range specs {
		if _, err := lease.Sandbox(ctx, spec); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(p.Stats().Sandboxes, "machines")
	lease.Close() // which closes them
	p.Wait()
	fmt.Println(p.Stats().Sandboxes, "machines")

	_, err = p.Acquire(ctx, []sandbox.Spec{{Memory: 3 << 30}})
	fmt.Println("never fits:", errors.Is(err, sandbox.ErrNeverFits))
	// Output:
	// 2 machines
	// 0 machines
	// never fits: true
}
