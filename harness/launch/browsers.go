package launch

import (
	"errors"
	"fmt"
	"os/exec"

	"github.com/evalrun/evalrun/benchmarks/web"
	"github.com/evalrun/evalrun/browsergym"
	"github.com/evalrun/evalrun/browsergym/browsers"
	"github.com/evalrun/evalrun/browsergym/cdp"
	"github.com/evalrun/evalrun/harness/config"
)

// lookForBrowser returns an error if the configuration names a browser that is not installed. If it
// names none and none is installed, browser tasks are skipped.
func (r *Ready) lookForBrowser() error {
	c := r.Eff.Browser
	if c == nil || c.Path == "" || r.o.Grade {
		return nil
	}
	if _, err := cdp.Find(c.Path); err != nil {
		if why := new(exec.Error); errors.As(err, &why) {
			err = why.Err
		}
		err := r.Eff.Wrong("browser.path", fmt.Sprintf("%s cannot be started: %v", c.Path, err),
			"name another, or leave the key out: then the first browser that is found is taken (evalrun doctor "+
				"says which)")
		if !r.o.Dry {
			return err
		}
		r.Notes = append(r.Notes, err.Error())
	}
	return nil
}

// openBrowsers creates the run's browser pool. No browser is started until a trial needs one.
func openBrowsers(c *config.Browser) web.Browsers {
	if c == nil {
		c = &config.Browser{}
	}
	b := web.Browsers{Pool: browsers.New(browsers.Options{Path: c.Path, Contexts: c.Contexts})}
	if _, err := cdp.Find(c.Path); err != nil {
		b.Missing = err.Error()
	}
	if c.Pace == "reference" {
		b.Pace = browsergym.Reference
	}
	b.Record = web.Record{NoScreenshot: c.Screenshots != nil && !*c.Screenshots, SOM: c.SOM,
		DownloadLimit: int64(c.Downloads)}
	return b
}
