package cdp

import (
	"net/url"
)

// minStorageQuota is the least quota of an origin, for pages that embed many others.
const minStorageQuota = 4 << 20

// maxOrigins bounds the origins that a context remembers. Later ones get the least quota.
const maxOrigins = 1000

// setStorageQuota limits what the origin of a document may store to half of what is left of the
// context's limit. The sum stays below the limit, and the first origins get the most. Storage is in
// the browser's memory, which other contexts share. The lock is held.
func (p *Page) setStorageQuota(address string) {
	c := p.c
	if c.opts.Storage <= 0 {
		return
	}
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return // other addresses have no storage, or that of their opener
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
	size := max(minStorageQuota, (c.opts.Storage-c.storageQuota)/2)
	c.storageQuota += size
	c.b.Send(p.session, "Storage.overrideQuotaForOrigin", map[string]any{"origin": origin, "quotaSize": size})
}
