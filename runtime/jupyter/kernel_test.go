package jupyter

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/evalrun/evalrun/runtime/local"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

func TestMain(m *testing.M) {
	local.Init()
	os.Exit(m.Run())
}

func TestQuick(t *testing.T) {
	d := local.New()
	t.Cleanup(func() { d.Close() })
	sb, err := d.Create(t.Context(), sandbox.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sb.Close() })
	k := New(func(context.Context) (sandbox.Sandbox, error) { return sb, nil }, Options{}, false)
	for _, c := range []string{"1+1", "print('hi'); x=3\nx", "1/0", "input('a')", "import matplotlib.pyplot as plt\nplt.plot([1,2,3])\nplt.show()",
		"import os\nos.chdir('/tmp')", "open_file?", "import time\ntime.sleep(100)", "exit()", "x", "import os; os.kill(os.getpid(), 9)", "print('y'*100_000_000)", "for i in range(10**6): print('z'*99)",
		"import agentskills; find_file('kernel', '/etc')"} {
		at := time.Now()
		r, err := k.Run(t.Context(), Cell{Code: c, Timeout: 10 * time.Second})
		for i := range r.Parts {
			if r.Parts[i].Image != nil {
				r.Parts[i].Text = "IMAGE"
				os.WriteFile("/tmp/h15.png", r.Parts[i].Image, 0o644)
				r.Parts[i].Image = nil
			}
			if len(r.Parts[i].Text) > 1000 {
				s := r.Parts[i].Text
				r.Parts[i].Text = s[:100] + "…" + s[len(s)/2-100:len(s)/2+100] + "…" + s[len(s)-100:]
			}
		}
		t.Logf("%s\n%+v %v %v", c, r, err, time.Since(at))
	}
}
