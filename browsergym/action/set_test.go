package action_test

import (
	"slices"
	"testing"

	"github.com/evalrun/evalrun/browsergym/action"
	"github.com/evalrun/evalrun/browsergym/pyrepr"
)

func TestCustom(t *testing.T) {
	wave := &action.Spec{Name: "wave", Params: []action.Param{{Name: "times", Type: "int", Default: pyrepr.Int("1")}},
		Doc: "Waves.", Examples: []string{"wave(2)"}}
	s, err := action.New(action.Options{Subsets: []string{"custom", "chat"}, Custom: []*action.Spec{wave}})
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Names(); !slices.Equal(got, []string{"noop", "wave", "send_msg_to_user"}) {
		t.Error(got)
	}
	calls, err := s.Parse("wave()")
	if err != nil {
		t.Fatal(err)
	}
	if args, err := s.Bind(calls[0]); err != nil || len(args) != 1 || pyrepr.Repr(args[0]) != "1" {
		t.Error(args, err)
	}
}
