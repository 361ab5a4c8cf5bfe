package main

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/evalrun/evalrun/browsergym"
	"github.com/evalrun/evalrun/browsergym/obs"
)

// An answer is what a browser said of one page when it was recorded.
type answer struct {
	Scale float64 `json:"scale_factor"`
	Raw   *struct {
		Snapshot json.RawMessage `json:"snapshot"`
		AXTrees  []struct {
			Frame string          `json:"frameId"`
			Nodes json.RawMessage `json:"nodes"`
		} `json:"axtrees"`
		Describe []struct {
			Backend int    `json:"backendNodeId"`
			Frame   string `json:"frameId"`
		} `json:"describe_node"`
	} `json:"raw"`
}

// texts measures how fast recorded answers of a browser become texts, on one core: reading them, merging, three texts.
func (b *bench) texts(*rig) error {
	files, err := filepath.Glob(filepath.Join(b.golden, "*", "*.jsonl.gz"))
	if err != nil {
		return err
	}
	if len(files) == 0 {
		b.note("browser: recorded answers to texts", "not measured: needs recordings; name their folder by -golden")
		return nil
	}
	var all []answer
	for _, f := range files {
		more, err := answers(f)
		if err != nil {
			return fmt.Errorf("%s: %w", f, err)
		}
		all = append(all, more...)
	}
	if len(all) == 0 {
		return fmt.Errorf("%s has no recorded answers", b.golden)
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	runtime.GC()
	t := time.Now()
	for i := range all {
		if err := all[i].render(); err != nil {
			return err
		}
	}
	rate := float64(len(all)) / time.Since(t).Seconds()
	b.addLeast("browser: recorded answers to texts, on one core", rate, 300, 0, perSecond, "")
	b.note("— observations", fmt.Sprint(len(all)))
	return nil
}

func answers(file string) (all []answer, err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(bufio.NewReaderSize(z, 1<<20))
	for d.More() {
		var a answer
		if err := d.Decode(&a); err != nil {
			return nil, err
		}
		if a.Raw != nil {
			all = append(all, a)
		}
	}
	return all, nil
}

// render does what an observation needs of them.
func (a *answer) render() error {
	o := &browsergym.Observation{DOM: new(obs.Snapshot)}
	if err := json.Unmarshal(a.Raw.Snapshot, o.DOM); err != nil {
		return err
	}
	o.DOM.Clean()
	o.Properties, _ = obs.PropertiesOf(o.DOM, a.Scale)
	trees := make([]obs.AXTree, len(a.Raw.AXTrees))
	for i, t := range a.Raw.AXTrees {
		if err := json.Unmarshal(t.Nodes, &trees[i].Nodes); err != nil {
			return err
		}
		trees[i].FrameID = t.Frame
	}
	frames := map[int]string{}
	for _, d := range a.Raw.Describe {
		frames[d.Backend] = d.Frame
	}
	o.AX = obs.Merge(trees, func(b int) string { return frames[b] })
	return render(o)
}
