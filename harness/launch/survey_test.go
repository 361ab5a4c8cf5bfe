package launch

import (
	"testing"

	"github.com/evalrun/evalrun/runtime/egress"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// The description of the network policies is short, but always names what is not public.
func TestNetworks(t *testing.T) {
	list := func(hosts ...string) string { return egress.Text(sandbox.Network{Mode: "allow", Allow: hosts}) }
	long := list("10.0.0.0/8", "a.example.org", "b.example.org", "c.example.org", "d.example.org", "e.example.org",
		"f.example.org", "g.example.org")
	for want, tasks := range map[string]map[string]int{
		"none":                                {"none": 3},
		"public for 3 tasks; none for 1 task": {"none": 1, "public": 3},
		"allow example.org":                   {list("Example.org."): 1},
		"allow 10.0.0.0/8, a.example.org, b.example.org and 5 more (not public: 10.0.0.0/8)": {long: 1},
		"none for 9 tasks; allow a for 2 tasks; allow b for 2 tasks; public for 2 tasks; 2 others for 2 tasks": {
			"none": 9, "public": 2, list("a"): 2, list("b"): 2, list("c"): 1, list("d"): 1},
	} {
		if got := (&Needs{Networks: tasks}).networks(); got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
}
