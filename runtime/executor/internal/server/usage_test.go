package server

import "testing"

func TestField(t *testing.T) {
	const events = "low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 0\n"
	const control = "oom_kill_disable 0\nunder_oom 0\noom_kill 7\n"
	const cpu = "usage_usec 1500\nuser_usec 1000\nsystem_usec 500\nnr_periods 0\nnr_throttled 0\nthrottled_usec 20\n"
	for _, tt := range []struct {
		text, name string
		want       int64
	}{{events, "oom_kill", 2}, {control, "oom_kill", 7}, {cpu, "usage_usec", 1500}, {cpu, "throttled_usec", 20},
		{cpu, "throttled_time", -1}, {"", "x", -1}, {"x\nx y\n", "x", -1}} {
		if got := field([]byte(tt.text), tt.name); got != tt.want {
			t.Errorf("%s is %d, want %d", tt.name, got, tt.want)
		}
	}
}

// Where nothing is shown, nothing is known, and nothing fails.
func TestNoUsage(t *testing.T) {
	var u *usage
	if u.killed() || u.kills() != -1 {
		t.Error("something was killed")
	}
	u = &usage{oom: -1}
	if u.killed() || number("no/such") != -1 {
		t.Error("something is known")
	}
}
