package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// reference measures BrowserGym itself on the same page, if scripts/browsergym can set it up.
func (b *bench) reference() error {
	cmd := exec.Command("scripts/browsergym", pages())
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		b.note("BrowserGym on the same page", "not measured: scripts/browsergym could not set it up")
		fmt.Fprintln(os.Stderr, lastLine(errs.String()))
		return nil
	}
	var all []struct {
		Name    string  `json:"name"`
		Seconds float64 `json:"seconds"`
	}
	if err := json.Unmarshal(out, &all); err != nil {
		return fmt.Errorf("scripts/browsergym: %w: %.300s", err, out)
	}
	for _, x := range all {
		b.note("BrowserGym 0.14.3: "+x.Name, ms(x.Seconds))
	}
	return nil
}

func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return s[strings.LastIndexByte(s, '\n')+1:]
}

// pages returns MiniWoB++'s directory html, or "".
func pages() string {
	if dir := os.Getenv("EVALRUN_TEST_MINIWOB"); dir != "" {
		return dir
	}
	dir, err := filepath.Abs(".cache/miniwob/miniwob/html")
	if err != nil {
		return ""
	}
	if _, err := os.Stat(dir); err != nil {
		return ""
	}
	return dir
}
