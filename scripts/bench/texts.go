package main

import (
	"fmt"
	"path/filepath"
	"runtime"
	"time"

	"github.com/evalrun/evalrun/browsergym"
	"github.com/evalrun/evalrun/browsergym/recordings"
)

// texts measures how fast recorded browser responses are converted to texts on one core: reading,
// merging, three texts.
func (b *bench) texts(*rig) error {
	files, err := filepath.Glob(filepath.Join(b.golden, "*", "*.jsonl.gz"))
	if err != nil {
		return err
	}
	if len(files) == 0 {
		b.note("browser: recorded answers to texts", "not measured: needs recordings; name their folder by -golden")
		return nil
	}
	var all []*recordings.Observation // with the browser's responses
	for _, f := range files {
		err := recordings.Read(f, func(*recordings.Header) error { return nil }, func(o *recordings.Observation) error {
			if o.Answered() {
				all = append(all, o)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	if len(all) == 0 {
		return fmt.Errorf("%s has no recorded answers", b.golden)
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	runtime.GC()
	t := time.Now()
	for _, o := range all {
		v, err := o.View()
		if err != nil {
			return err
		}
		if err := render(&browsergym.Observation{DOM: v.DOM, AX: v.AX, Properties: v.Properties}); err != nil {
			return err
		}
	}
	rate := float64(len(all)) / time.Since(t).Seconds()
	b.addLeast("browser: recorded answers to texts, on one core", rate, 300, 0, perSecond, "")
	b.note("— observations", fmt.Sprint(len(all)))
	return nil
}
