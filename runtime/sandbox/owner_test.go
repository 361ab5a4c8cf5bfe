package sandbox

import (
	"os"
	"testing"
)

func TestSelf(t *testing.T) {
	o := Self()
	if o.Host == "" || o.Boot == "" || o.PID != os.Getpid() || o.Start == 0 || o != Self() {
		t.Errorf("%+v", o)
	}
	if n, ok := Started(1 << 30); ok {
		t.Errorf("a process that is not there began at %d", n)
	}
}
