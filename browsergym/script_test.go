package browsergym_test

import (
	"strings"
	"testing"

	"github.com/evalrun/evalrun/browsergym"
)

// An address that is a program is not run: with it an agent would write its own reward.
func TestScriptAddress(t *testing.T) {
	b, base := launch(t), pages(t)
	e := play(t, browsergym.Options{Browser: b}, func(seed uint32) browsergym.Task {
		return &browsergym.MiniWoB{Name: "press-it", Base: base, Seed: seed}
	})
	const forge = "void(WOB_RAW_REWARD_GLOBAL=1,WOB_DONE_GLOBAL=true)"
	for _, scheme := range []string{"javascript:", "JavaScript:", "  javascript:", "java\\tscript:", "\\x01javascript:",
		"java\\nscript:", "view-source:javascript:", "javascript\\t:", "%6aavascript:"} {
		reset(t, e, 1)
		r := step(t, e, "goto('"+scheme+forge+"')")
		if r.Reward != 0 {
			t.Errorf("%q: reward %v", scheme, r.Reward)
		}
		if first, _, _ := strings.Cut(r.Observation.LastError, "\n"); scheme == "javascript:" &&
			first != "Error: Page.goto: net::ERR_ABORTED at javascript:"+forge {
			t.Error(first)
		}
	}
}
