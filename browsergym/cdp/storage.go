package cdp

import (
	"net/url"
)

// leastStorage is what an origin may store at least: that of a page which embeds many others, say.
const leastStorage = 4 << 20

// maxOrigins bounds the origins that a context remembers. There is no more than the least for those
// after them.
const maxOrigins = 1000

// allot bounds what the origin of a document may store: half of what is left of the context's
// limit, so that all of them stay below it, and those that come first, which a task is about, have
// the most. It is kept in the browser's own memory, which other contexts share. The lock is held.
func (p *Page) allot(address string) {
	c := p.c
	if c.opts.Storage <= 0 {
		return
	}
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return // of others there is none, or they have their opener's
	}
	origin := u.Scheme + "://" + u.Host
	if c.origins[origin] {
		return
	}
	if c.origins == nil {
		c.origins = map[string]bool{}
	}
	if len(c.origins) < maxOrigins {
		c.origins[origin] = true
	}
	size := max(leastStorage, (c.opts.Storage-c.allotted)/2)
	c.allotted += size
	c.b.Send(p.session, "Storage.overrideQuotaForOrigin", map[string]any{"origin": origin, "quotaSize": size})
}
