package config

import (
	"strings"
	"testing"
)

func TestImagesKeys(t *testing.T) {
	const head = "benchmark: quickstart\nagent: nop\n"
	e := mustParse(t, head)
	if i := e.Images; i == nil || i.Pull != "missing" || i.Budget != 0 || i.Context != 0 {
		t.Errorf("defaults: %+v", i)
	}
	e = mustParse(t, head+"images: {budget: 50GiB, context: 8GiB}\npools: {builds: 3, pulls: 2}\n")
	if i := e.Images; i.Pull != "missing" || i.Budget != 50<<30 || i.Context != 8<<30 || e.Pools.Builds != 3 ||
		e.Pools.Pulls != 2 || e.Pools.Connections != 64 {
		t.Errorf("%+v, %+v", i, e.Pools)
	}
	e = mustParse(t, head+"images: {budget: none, pull: always}\n")
	if i := e.Images; i.Budget != Unlimited || i.Pull != "always" {
		t.Errorf("%+v", i)
	}
	b, err := e.YAML()
	if err != nil || !strings.Contains(string(b), "budget: none") {
		t.Errorf("%s, %v", b, err)
	}
	if again := mustParse(t, string(b)); *again.Images != *e.Images {
		t.Errorf("read back: %+v", again.Images)
	}
	for text, want := range map[string]string{
		"images: {budget: much}": `"much" is not a size`, "images: {budget: 0B}": "nothing could be kept",
		"images: {pull: sometimes}": "missing", "images: {bugdet: 1GiB}": "budget",
		"pools: {builds: 0}": "builds",
	} {
		if _, err := parseText(t, head+text+"\n"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
