// Package webarena implements the tasks of WebArena, WebArena Lite and VisualWebArena and their
// grading: by the agent's answer, by the page where it ended, and by the content of the sites
// afterwards.
//
// The tasks come from the user's copy of the published files, in which sites are placeholders such
// as __SHOPPING__ that [Sites] replaces. Evaluators access the browser through the small interface
// [Browser], and models through [Judge] and [Captioner].
package webarena

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"sort"
	"strings"
)

// A Dialect is one of the benchmarks. They interpret the same configuration keys differently.
type Dialect string

const (
	WebArena Dialect = "webarena"
	Lite     Dialect = "webarena_lite"
	Visual   Dialect = "visualwebarena"
)

// names returns the names of the benchmark's sites, as used in configurations.
func (d Dialect) names() []string {
	if d == Visual {
		return []string{"shopping", "reddit", "wikipedia", "homepage", "classifieds"}
	}
	return []string{"shopping", "shopping_admin", "reddit", "gitlab", "wikipedia", "map", "homepage"}
}

// Actions returns the action subset that agents are given.
func (d Dialect) Actions() string {
	if d == Visual {
		return "visualwebarena"
	}
	return "webarena"
}

// prefix returns the prefix of the environment variables.
func (d Dialect) prefix() string {
	if d == Visual {
		return "VWA_"
	}
	return "WA_"
}

// Sites maps the names of a benchmark's sites to addresses: "shopping" → "http://localhost:7770".
type Sites map[string]string

// SitesFrom reads the addresses from the usual environment variables, such as WA_SHOPPING and
// VWA_REDDIT. missing lists those that are not set. The value "todo" marks a site as unavailable
// without an error.
func SitesFrom(d Dialect, getenv func(string) string) (s Sites, missing []string) {
	s = Sites{}
	for _, n := range d.names() {
		key := d.prefix() + strings.ToUpper(n)
		if v := getenv(key); v != "" {
			s[n] = strings.TrimRight(v, "/")
		} else {
			missing = append(missing, key)
		}
	}
	return s, missing
}

// There reports whether a site has an address.
func (s Sites) There(name string) bool { return s[name] != "" && s[name] != "todo" }

// Expand replaces placeholders, __SHOPPING__ or ${SHOPPING}, with addresses.
func (s Sites) Expand(text string) string {
	names := make([]string, 0, len(s))
	for n := range s {
		names = append(names, n)
	}
	sort.Strings(names) // for determinism only: __SHOPPING__ does not occur in __SHOPPING_ADMIN__
	pairs := make([]string, 0, 4*len(s))
	for _, n := range names {
		pairs = append(pairs, "__"+strings.ToUpper(n)+"__", s[n], "${"+strings.ToUpper(n)+"}", s[n])
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

// expand is Expand for text within JSON.
func (s Sites) expand(raw string) string {
	quoted := Sites{}
	for k, v := range s {
		b, _ := json.Marshal(v) // marshaling a string cannot fail
		quoted[k] = string(b[1 : len(b)-1])
	}
	return quoted.Expand(raw)
}

// changes reports whether users can change a site.
func changes(site string) bool { return site != "wikipedia" }

// Allowed reports whether an agent may be at an address: an empty tab, or one of the sites. A page
// at any other address ends the episode.
func (s Sites) Allowed(address string) bool {
	host := split(address).host
	return host == "" || host == "newtab" || s.hosts(address)
}

// hosts reports whether an address belongs to one of the sites.
func (s Sites) hosts(address string) bool {
	host := split(address).host
	for name, v := range s {
		if host != "" && s.There(name) && split(v).host == host {
			return true
		}
	}
	return false
}

// Accounts are the accounts of the published sites, by site. The shop's administrator account is
// also used for its REST API.
var Accounts = map[string]Account{
	"reddit":         {User: "MarvelsGrantMan136", Password: "test1234"},
	"gitlab":         {User: "byteblaze", Password: "hello1234"},
	"shopping":       {User: "emma.lopez@gmail.com", Password: "Password.123"},
	"shopping_admin": {User: "admin", Password: "admin1234"},
	"classifieds":    {User: "blake.sullivan@gmail.com", Password: "Password.123"},
}

// tiny returns the task numbers of webarena_tiny and visualwebarena_tiny.
func (d Dialect) tiny() []int {
	if d == Visual {
		return []int{228, 263, 550, 784}
	}
	return []int{410, 533, 537, 552, 561, 562}
}

// parts is an address split the way Python's urllib does it.
type parts struct{ scheme, host, path, query string }

func split(address string) parts {
	var p parts
	s := strings.TrimLeftFunc(address, func(r rune) bool { return r <= ' ' })
	s = strings.Map(func(r rune) rune {
		if r == '\t' || r == '\r' || r == '\n' {
			return -1
		}
		return r
	}, s)
	if i := strings.IndexByte(s, ':'); i > 0 && isLetter(s[0]) && !strings.ContainsFunc(s[:i], func(r rune) bool {
		return !(r < 0x80 && (isLetter(byte(r)) || '0' <= r && r <= '9' || r == '+' || r == '-' || r == '.'))
	}) {
		p.scheme, s = strings.ToLower(s[:i]), s[i+1:]
	}
	if rest, ok := strings.CutPrefix(s, "//"); ok {
		i := strings.IndexAny(rest, "/?#")
		if i < 0 {
			i = len(rest)
		}
		p.host, s = rest[:i], rest[i:]
	}
	s, _, _ = strings.Cut(s, "#")
	s, p.query, _ = strings.Cut(s, "?")
	if slices.Contains([]string{"", "http", "https", "ftp", "sftp", "rtsp", "mms", "sip"}, p.scheme) {
		if i := strings.IndexByte(s[strings.LastIndexByte(s, '/')+1:], ';'); i >= 0 {
			s = s[:strings.LastIndexByte(s, '/')+1+i]
		}
	}
	p.path = s
	return p
}

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

// values parses a query; parameters without a value are dropped.
func values(query string) map[string][]string {
	out := map[string][]string{}
	for field := range strings.SplitSeq(query, "&") {
		if k, v, ok := strings.Cut(field, "="); ok && v != "" {
			k, v = unquote(k), unquote(v)
			out[k] = append(out[k], v)
		}
	}
	return out
}

// unquote leaves invalid escapes unchanged.
func unquote(s string) string {
	s = strings.ReplaceAll(s, "+", " ")
	if t, err := url.PathUnescape(s); err == nil {
		return strings.ToValidUTF8(t, "\uFFFD")
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if i+2 < len(s) && s[i] == '%' {
			if t, err := url.PathUnescape(s[i : i+3]); err == nil {
				b.WriteString(t)
				i += 2
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return strings.ToValidUTF8(b.String(), "\uFFFD")
}

// A ConfigError reports an invalid task configuration: the task's fault, not the agent's.
type ConfigError struct{ Text string }

func (e *ConfigError) Error() string { return "configuration: " + e.Text }

func wrong(format string, args ...any) error { return &ConfigError{fmt.Sprintf(format, args...)} }
