package config

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/evalrun/evalrun/internal/fsutil"
	"github.com/evalrun/evalrun/internal/yamldoc"
)

func (l *layout) model(m *Model, n *node, key string) {
	if m == nil {
		l.fail(n, key, "an empty model", "")
		return
	}
	vendor, name, ok := strings.Cut(m.Name, "/")
	at := cmpNode(n.Get("name"), n)
	if !ok || name == "" {
		names := slices.Sorted(maps.Keys(l.out.File.Models))
		if slices.Contains(names, m.Name) { // such as models: {small: {name: small}}
			l.fail(at, key, fmt.Sprintf("the name %q of a model says no vendor", m.Name),
				"write vendor/NAME, such as openai/gpt-4o-mini")
			return
		}
		for _, v := range kindNames(l.reg.Vendors) {
			names = append(names, v+"/NAME")
		}
		l.fail(at, key, fmt.Sprintf("unknown model %q", m.Name), yamldoc.OrKnown(m.Name, names))
		return
	}
	if l.reg.Vendor(vendor) == nil {
		l.fail(at, key, fmt.Sprintf("unknown vendor %q of model %q", vendor, m.Name),
			yamldoc.OrKnown(vendor, l.reg.names("vendor")))
		return
	}
	if m.BaseURL == "" {
		l.usual(m, l.reg.Vendor(vendor), at, key)
	}
	for _, d := range []struct {
		name string
		d    Duration
	}{{"timeout", m.Timeout}, {"patience", m.Patience}} {
		if at := n.Get(d.name); at != nil && d.d == 0 {
			l.fail(at, key+"."+d.name, "nothing can be answered in no time", "leave it out for the default")
		}
	}
	if m.BaseURL != "" && !strings.HasPrefix(m.BaseURL, "http://") && !strings.HasPrefix(m.BaseURL, "https://") {
		l.fail(cmpNode(n.Get("base_url"), n), key+".base_url", fmt.Sprintf("%q is not an address", m.BaseURL),
			"it begins with http:// or https://")
	}
	if m.Tape != nil {
		m.Tape.File = abs(l.dir, m.Tape.File)
	}
}

// usual sets the address and key of a model without an address from the vendor's usual variables,
// as the vendor's own clients do. The address is stored with the run, so that a resume uses the
// same one.
func (l *layout) usual(m *Model, k *Kind, at *node, key string) {
	url, _ := l.env(k.URLVar)
	if url != "" && !strings.HasPrefix(url, "http://") && !strings.HasPrefix(url, "https://") {
		l.fail(at, key, fmt.Sprintf("the variable %s, where %s is called, is not an address", k.URLVar, m.Name),
			"it begins with http:// or https://; or say base_url")
		return
	}
	m.BaseURL = url
	// the user's own server may need no key
	if _, have := l.env(k.KeyVar); m.Key == "" && k.KeyVar != "" && (url == "" || have) {
		m.Key = Secret("${" + k.KeyVar + "}")
	}
}

const maxPrompt = 1 << 20

func (l *layout) prompt(p *Prompt, n *node, key string) {
	switch {
	case p.File != "" && p.Text != "":
		l.fail(n, key, "a prompt has a file or a text, not both", "")
		return
	case p.File == "" && p.Text == "":
		l.fail(n, key, "a prompt needs a file or a text", "")
		return
	case p.File != "":
		path := abs(l.dir, p.File)
		b, err := fsutil.ReadFile(path, 0)
		switch {
		case err != nil:
			l.fail(cmpNode(n.Get("file"), n), key, err.Error(), "paths are relative to the configuration's folder")
			return
		case len(b) > maxPrompt:
			l.fail(n, key, fmt.Sprintf("prompt %s is larger than 1MiB", path), "")
			return
		case !utf8.Valid(b):
			l.fail(n, key, fmt.Sprintf("prompt %s is not UTF-8 text", path), "")
			return
		case strings.TrimSpace(string(b)) == "":
			l.fail(n, key, fmt.Sprintf("prompt %s is empty", path), "")
			return
		}
		if p.Name == "" {
			p.Name = promptLabel(p.File)
		}
		p.Text, p.File = string(b), ""
	}
	if p.Name == "" {
		sum := sha256.Sum256([]byte(p.Text))
		p.Name = "prompt-" + hex.EncodeToString(sum[:3])
	}
}

func promptLabel(file string) string {
	base := filepath.Base(file)
	return strings.TrimSuffix(base, filepath.Ext(base))
}
