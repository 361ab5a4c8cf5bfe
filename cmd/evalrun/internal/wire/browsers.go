package wire

import (
	"github.com/evalrun/evalrun/benchmarks/web"
	"github.com/evalrun/evalrun/browsergym"
	"github.com/evalrun/evalrun/browsergym/cdp"
	"github.com/evalrun/evalrun/browsergym/pool"
	"github.com/evalrun/evalrun/cmd/evalrun/internal/config"
)

// openBrowsers makes the pool of a run. No browser is started before a trial wants one.
func openBrowsers(c *config.Browser) web.Browsers {
	if c == nil {
		c = &config.Browser{}
	}
	b := web.Browsers{Pool: pool.New(pool.Options{Path: c.Path, Contexts: c.Contexts})}
	if _, err := cdp.Find(c.Path); err != nil {
		b.Missing = err.Error()
	}
	if c.Pace == "reference" {
		b.Pace = browsergym.Reference
	}
	b.Record = web.Record{NoScreenshot: c.Screenshots != nil && !*c.Screenshots, SOM: c.SOM, DownloadLimit: int64(c.Downloads)}
	return b
}
