package image

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// dockerHub is the key of Docker Hub in Docker's configuration.
const dockerHub = "https://index.docker.io/v1/"

// registry returns the host of an image's registry.
func registry(ref string) string {
	host, _, ok := strings.Cut(ref, "/")
	if !ok || !strings.ContainsAny(host, ".:") && host != "localhost" || host == "docker.io" ||
		host == "index.docker.io" {
		return dockerHub
	}
	return host
}

// dockerConfig is the part of Docker's config.json that we read.
type dockerConfig struct {
	Auths map[string]struct {
		Auth          string `json:"auth"`
		Username      string `json:"username"`
		Password      string `json:"password"`
		IdentityToken string `json:"identitytoken"`
	} `json:"auths"`
	CredsStore  string            `json:"credsStore"`
	CredHelpers map[string]string `json:"credHelpers"`
}

// auth returns the user's credentials for an image's registry from Docker's configuration. The zero
// value means anonymous access, which most registries allow.
func (s *Store) auth(ctx context.Context, ref string) (Auth, error) {
	dir := s.o.Config
	if dir == "" {
		dir = os.Getenv("DOCKER_CONFIG")
	}
	if dir == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return Auth{}, nil
		}
		dir = filepath.Join(home, ".docker")
	}
	file := filepath.Join(dir, "config.json")
	b, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return Auth{}, nil
	}
	if err != nil {
		return Auth{}, fmt.Errorf("credentials of registries: %w", err)
	}
	var c dockerConfig
	if err := json.Unmarshal(b, &c); err != nil {
		return Auth{}, fmt.Errorf("credentials of registries: %s: %w", file, err)
	}
	host := registry(ref)
	if helper := c.CredHelpers[host]; helper != "" {
		return askHelper(ctx, helper, host)
	}
	if helper := c.CredHelpers["docker.io"]; helper != "" && host == dockerHub {
		return askHelper(ctx, helper, host)
	}
	for name, a := range c.Auths {
		if !sameRegistry(name, host) {
			continue
		}
		out := Auth{Username: a.Username, Password: a.Password, IdentityToken: a.IdentityToken, ServerAddress: host}
		if a.Auth != "" {
			plain, err := base64.StdEncoding.DecodeString(a.Auth)
			user, pass, ok := strings.Cut(string(plain), ":")
			if err != nil || !ok {
				return Auth{}, fmt.Errorf("credentials of registries: %s: the entry for %s cannot be read; log in "+
					"again with docker login", file, name)
			}
			out.Username, out.Password = user, strings.TrimRight(pass, "\x00")
		}
		if out.Username != "" || out.IdentityToken != "" {
			return out, nil
		}
	}
	if c.CredsStore != "" {
		return askHelper(ctx, c.CredsStore, host)
	}
	return Auth{}, nil
}

// sameRegistry compares registry names in the forms that Docker has used over the years: with and
// without scheme and path.
func sameRegistry(a, b string) bool {
	bare := func(s string) string {
		s = strings.TrimPrefix(strings.TrimPrefix(s, "https://"), "http://")
		s, _, _ = strings.Cut(s, "/")
		if s == "docker.io" || s == "registry-1.docker.io" {
			s = "index.docker.io"
		}
		return s
	}
	return bare(a) == bare(b)
}

var helperName = regexp.MustCompile(`^[A-Za-z0-9._-]+$`)

// askHelper asks one of Docker's credential helpers.
func askHelper(ctx context.Context, helper, host string) (Auth, error) {
	if !helperName.MatchString(helper) {
		return Auth{}, fmt.Errorf("credentials of %s: %q is no name of a credential helper", host, helper)
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	program := "docker-credential-" + helper
	cmd := exec.CommandContext(ctx, program, "get")
	cmd.Stdin = strings.NewReader(host)
	cmd.WaitDelay = time.Second
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	out, err := cmd.Output()
	said := strings.TrimSpace(string(out) + " " + errOut.String())
	if strings.Contains(said, "credentials not found") {
		return Auth{}, nil
	}
	if err != nil {
		return Auth{}, fmt.Errorf("credentials of %s: %s: %w: %.200s", host, program, err, said)
	}
	var got struct{ Username, Secret string }
	if err := json.Unmarshal(out, &got); err != nil {
		return Auth{}, fmt.Errorf("credentials of %s: %s: its answer cannot be read", host, program)
	}
	if got.Username == "<token>" {
		return Auth{IdentityToken: got.Secret, ServerAddress: host}, nil
	}
	return Auth{Username: got.Username, Password: got.Secret, ServerAddress: host}, nil
}
