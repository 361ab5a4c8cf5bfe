package web_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/benchmarks/web"
)

func TestGrade(t *testing.T) {
	for _, x := range []struct {
		rewards []float64
		data    string
		want    float64
		why     string
		flags   string
	}{
		{nil, "", 0, "no step was made", ""},
		{[]float64{0, 1}, `{"rule":"last","steps":2,"terminated":true}`, 1, "", ""},
		{[]float64{1, 0}, `{"steps":2,"terminated":true}`, 0, "", ""},
		{[]float64{1, 0.5}, `{"rule":"max","steps":2}`, 1, "", ""},
		{[]float64{1, 0.5}, `{"rule":"sum","steps":2}`, 1.5, "", ""},
		{[]float64{0, 0}, `{"steps":2,"truncated":true}`, 0, "not done after 2 steps", "truncated"},
		{[]float64{0, 1}, `{"steps":2,"truncated":true}`, 1, "", "truncated"},
		{[]float64{0}, `{"steps":1,"task_info":{"error":"invalid url, terminating task"}}`, 0,
			"invalid url, terminating task", ""},
		{[]float64{0}, `{"steps":1,"failed":"the page is gone"}`, 0, "the page is gone", "page_failed"},
	} {
		r, err := web.Grade(benchmarks.Evidence{Rewards: x.rewards, Data: json.RawMessage(x.data)})
		if err != nil {
			t.Error(err)
			continue
		}
		s := r.Primary()
		if s == nil || s.Name != "reward" || *s.Value != x.want || s.Why != x.why ||
			strings.Join(r.Flags, " ") != x.flags {
			t.Errorf("%v %s: %+v, %v", x.rewards, x.data, s, r.Flags)
		}
	}
	for _, bad := range []string{`{"rule":"best"}`, `{`} {
		if _, err := web.Grade(benchmarks.Evidence{Rewards: []float64{1}, Data: json.RawMessage(bad)}); err == nil {
			t.Errorf("%s was graded", bad)
		}
	}
}
