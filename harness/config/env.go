package config

import (
	"bufio"
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/evalrun/evalrun/internal/fsutil"
)

// Env looks up variables in the environment, then in a .env file.
type Env struct {
	lookup func(string) (string, bool)
	file   map[string]string

	mu    sync.Mutex
	used  map[string]bool
	unset map[string]bool // nil if unset variables are errors
}

// NewEnv returns an Env for the process's environment (lookup) and a .env file, if one is named.
// Lines of the file are NAME=value, with or without quotes and a leading "export"; # starts a
// comment.
func NewEnv(lookup func(string) (string, bool), file string) (*Env, error) {
	e := &Env{lookup: lookup, file: map[string]string{}, used: map[string]bool{}}
	if file == "" {
		return e, nil
	}
	b, err := fsutil.ReadFile(file, 0)
	if err != nil {
		return nil, fmt.Errorf("env_file: %w", err)
	}
	sc := bufio.NewScanner(bytes.NewReader(bytes.TrimPrefix(b, []byte("\ufeff"))))
	sc.Buffer(nil, 1<<20)
	for line := 1; sc.Scan(); line++ {
		s := strings.TrimSpace(sc.Text())
		s = strings.TrimSpace(strings.TrimPrefix(s, "export "))
		if s == "" || s[0] == '#' {
			continue
		}
		name, val, ok := strings.Cut(s, "=")
		name = strings.TrimSpace(name)
		if !ok || !secretForm.MatchString("${"+name+"}") { // do not show the line, which may contain a secret
			return nil, fmt.Errorf("%s:%d: expected NAME=value", file, line)
		}
		e.file[name] = unquote(strings.TrimSpace(val))
	}
	if err := sc.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return e, nil
}

func unquote(s string) string {
	if len(s) >= 2 && (s[0] == '"' || s[0] == '\'') {
		if i := strings.IndexByte(s[1:], s[0]); i >= 0 {
			return s[1 : 1+i]
		}
	}
	if i := strings.Index(s, " #"); i >= 0 {
		s = strings.TrimSpace(s[:i])
	}
	return s
}

// Lookup returns the value of a variable.
func (e *Env) Lookup(name string) (string, bool) {
	if v, ok := e.lookup(name); ok && v != "" {
		return v, true
	}
	v, ok := e.file[name]
	return v, ok && v != ""
}

// Secret resolves a reference. The empty reference gives the empty value.
func (e *Env) Secret(s Secret) (string, error) {
	if s == "" {
		return "", nil
	}
	v, ok := e.Lookup(s.Var())
	if !ok && e.unset != nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.unset[s.Var()] = true
		return "", nil
	}
	if !ok {
		return "", fmt.Errorf("the variable %s is not set; export it, or name a file that has it as env_file", s.Var())
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.used[v] = true
	return v, nil
}

// Forgive makes unset variables count as empty, for commands that only inspect a run. Unset returns
// their names.
func (e *Env) Forgive() { e.unset = map[string]bool{} }

// Unset returns the names of the unset variables that were looked up since Forgive.
func (e *Env) Unset() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Sorted(maps.Keys(e.unset))
}

// Used returns the values of all resolved secrets, which must be masked.
func (e *Env) Used() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Sorted(maps.Keys(e.used))
}
