// Command golden compares browsergym with recordings of the reference, field by field.
// docs/fidelity.md describes and explains the results.
//
// Usage: go run ./scripts/golden [-do offline,fast,reference,random,differential] [-only REGEXP]
// [-miniwob FOLDER] [-v] [RECORDINGS]
//
// RECORDINGS, or EVALRUN_GOLDEN, is a directory of recordings. Recordings of pages need pages/ in
// it; those of MiniWoB++ need its directory html, given by -miniwob or EVALRUN_TEST_MINIWOB. The
// comparison differential needs none of these: it creates a Python environment with the reference.
// Every difference is assigned to a cause that docs/fidelity.md explains; if one has no known
// cause, the exit status is 1.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"strings"

	"github.com/evalrun/evalrun/browsergym"
	"github.com/evalrun/evalrun/browsergym/recordings"
)

func main() {
	var o options
	do := flag.String("do", "offline,fast",
		"what to compare: `LIST` of offline (texts, from recorded answers of the browser), fast and reference (the "+
			"episodes, live), random (all tasks of MiniWoB++, with random actions), differential (texts of many "+
			"pages beside the reference itself, in a Python made for it)")
	only := flag.String("only", "", "recordings or tasks whose names (recordings/nav, miniwob/click-test.1) "+
		"match `REGEXP`")
	flag.StringVar(&o.miniwob, "miniwob", os.Getenv("EVALRUN_TEST_MINIWOB"), "`FOLDER` html of MiniWoB++")
	flag.IntVar(&o.jobs, "jobs", runtime.GOMAXPROCS(0), "episodes at a time")
	flag.IntVar(&o.steps, "steps", 5, "random actions an episode")
	flag.IntVar(&o.retries, "retries", 2,
		"how often an episode with a difference that has no cause is played again: calls have half a second, which "+
			"may be too little on a busy machine")
	flag.BoolVar(&o.verbose, "v", false, "show every difference, not only those without a cause")
	flag.StringVar(&o.pictures, "pictures", "", "keep all our pictures in `FOLDER`, to be looked at")
	flag.StringVar(&o.venv, "venv", ".cache/lxml-venv", "`FOLDER` of the reference's Python; made when it is not there")
	flag.StringVar(&o.pages, "pages", ".cache/lxml-pages",
		"`FOLDER` of real pages; filled from Debian's packages of documentation when it is not there")
	flag.StringVar(&o.sample, "sample", "",
		"write some pages with the reference's texts of them to `FILE` (browsergym/obs/testdata/html.jsonl.gz is of "+
			"the default pages and seed)")
	flag.Uint64Var(&o.seed, "seed", 1, "seed of random pages")
	flag.IntVar(&o.trees, "trees", 50_000, "how many random pages")
	flag.Parse()
	o.dir = os.Getenv("EVALRUN_GOLDEN")
	if flag.NArg() > 0 {
		o.dir = flag.Arg(0)
	}
	var err error
	if o.only, err = regexp.Compile(*only); err != nil {
		fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	good := true
	for _, what := range strings.Split(*do, ",") {
		fmt.Printf("== %s\n", what)
		c, err := o.run(ctx, what)
		if err != nil {
			fatal(err)
		}
		c.print(os.Stdout)
		good = good && c.unexplained == 0
	}
	if !good {
		os.Exit(1)
	}
}

func fatal(err error) {
	fmt.Fprintln(os.Stderr, "golden:", err)
	os.Exit(2)
}

// options say what is compared.
type options struct {
	dir, miniwob string
	pictures     string
	only         *regexp.Regexp
	jobs, steps  int
	retries      int
	verbose      bool
	venv, pages  string
	sample       string
	seed         uint64
	trees        int
	out          io.Writer // for differences; nil means standard output
}

// run makes one comparison.
func (o *options) run(ctx context.Context, what string) (*tally, error) {
	if o.dir == "" && what != "random" && what != "differential" {
		return nil, errors.New("which recordings? name their folder, or set EVALRUN_GOLDEN")
	}
	c := newTally(o.verbose, o.out)
	switch what {
	case "offline":
		return c, o.offline(ctx, c)
	case "fast":
		return c, o.live(ctx, c, browsergym.Fast)
	case "reference":
		return c, o.live(ctx, c, browsergym.Reference)
	case "random":
		return c, o.random(ctx, c)
	case "differential":
		return c, o.differential(ctx, c)
	}
	return nil, fmt.Errorf("%q cannot be compared; offline, fast, reference, random and differential can", what)
}

// recordings returns the wanted recordings in a directory's subdirectories, name → file.
func (o *options) recordings(folders ...string) (map[string]string, error) {
	all, err := recordings.Files(o.dir, folders...)
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(all, func(name, _ string) bool { return !o.only.MatchString(name) })
	if len(all) == 0 {
		return nil, fmt.Errorf("none of the recordings in %s is wanted", o.dir)
	}
	return all, nil
}
