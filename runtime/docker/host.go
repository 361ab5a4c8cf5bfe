package docker

import (
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/docker/go-connections/tlsconfig"
	"github.com/moby/moby/client"
)

// A host is where an engine is, and how it is spoken to.
type host struct {
	Host string
	TLS  string // folder with ca.pem, cert.pem, key.pem
	Skip bool   // do not verify the engine's certificate
}

// findHost finds the engine as docker's own command does: what was asked for, DOCKER_HOST,
// DOCKER_CONTEXT, the current context, the usual socket.
func findHost(want string) (host, error) {
	h := host{Host: want}
	if h.Host == "" {
		h.Host = os.Getenv("DOCKER_HOST")
	}
	if h.Host != "" {
		if !strings.Contains(h.Host, "://") {
			return h, fmt.Errorf("docker host %q: write it as unix:///path, tcp://host:port or ssh://user@host", h.Host)
		}
		if strings.HasPrefix(h.Host, "tcp://") &&
			(os.Getenv("DOCKER_TLS_VERIFY") != "" || os.Getenv("DOCKER_TLS") != "") {
			h.TLS, h.Skip = os.Getenv("DOCKER_CERT_PATH"), os.Getenv("DOCKER_TLS_VERIFY") == ""
			if h.TLS == "" {
				h.TLS = configDir()
			}
		}
		return h, nil
	}
	name := os.Getenv("DOCKER_CONTEXT")
	if name == "" {
		var c struct{ CurrentContext string }
		if b, err := os.ReadFile(filepath.Join(configDir(), "config.json")); err == nil {
			_ = json.Unmarshal(b, &c) // then the default context
		}
		name = c.CurrentContext
	}
	if name == "" || name == "default" {
		return host{Host: client.DefaultDockerHost}, nil
	}
	return contextHost(name)
}

func configDir() string {
	if d := os.Getenv("DOCKER_CONFIG"); d != "" {
		return d
	}
	home, _ := os.UserHomeDir()
	return filepath.Join(home, ".docker")
}

// contextHost reads a stored context of docker's command.
func contextHost(name string) (host, error) {
	sum := sha256.Sum256([]byte(name))
	id := hex.EncodeToString(sum[:])
	b, err := os.ReadFile(filepath.Join(configDir(), "contexts", "meta", id, "meta.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return host{}, fmt.Errorf("docker context %q is not known: see docker context ls, and DOCKER_CONTEXT", name)
	}
	if err != nil {
		return host{}, fmt.Errorf("docker context %q: %w", name, err)
	}
	var m struct {
		Endpoints map[string]struct {
			Host          string
			SkipTLSVerify bool
		}
	}
	if err := json.Unmarshal(b, &m); err != nil {
		return host{}, fmt.Errorf("docker context %q: %w", name, err)
	}
	ep := m.Endpoints["docker"]
	if ep.Host == "" {
		return host{}, fmt.Errorf("docker context %q names no engine", name)
	}
	h := host{Host: ep.Host, Skip: ep.SkipTLSVerify}
	if dir := filepath.Join(configDir(), "contexts", "tls", id, "docker"); isDir(dir) {
		h.TLS = dir
	}
	return h, nil
}

func isFile(name string) bool {
	fi, err := os.Stat(name)
	return err == nil && fi.Mode().IsRegular()
}

func isDir(name string) bool {
	fi, err := os.Stat(name)
	return err == nil && fi.IsDir()
}

// connect makes a client; it says nothing to the engine yet.
func (h host) connect() (*client.Client, error) {
	// With HTTP/2 a clone of the transport, which the client makes, would have a TLS configuration,
	// and the client would use TLS for all hosts.
	http1 := new(http.Protocols)
	http1.SetHTTP1(true)
	tr := &http.Transport{MaxIdleConns: 32, MaxIdleConnsPerHost: 32, IdleConnTimeout: 30 * time.Second,
		Protocols: http1}
	opts := []client.Opt{client.WithAPIVersionFromEnv(), client.WithUserAgent("evalrun"),
		client.WithHTTPClient(&http.Client{Transport: tr, CheckRedirect: client.CheckRedirect})}
	if strings.HasPrefix(h.Host, "ssh://") {
		dial, err := sshDialer(h.Host)
		if err != nil {
			return nil, err
		}
		// A request wants some name; nobody looks it up.
		opts = append(opts, client.WithHost("tcp://docker"), client.WithDialContext(dial))
		return client.New(opts...)
	}
	if h.TLS != "" {
		c, err := h.tls()
		if err != nil {
			return nil, err
		}
		tr.TLSClientConfig = c
	}
	return client.New(append(opts, client.WithHost(h.Host))...)
}

func (h host) tls() (*tls.Config, error) {
	o := tlsconfig.Options{InsecureSkipVerify: h.Skip, ExclusiveRootPools: true}
	for name, field := range map[string]*string{"ca.pem": &o.CAFile, "cert.pem": &o.CertFile, "key.pem": &o.KeyFile} {
		if p := filepath.Join(h.TLS, name); isFile(p) {
			*field = p
		}
	}
	c, err := tlsconfig.Client(o)
	if err != nil {
		return nil, fmt.Errorf("certificates in %s: %w", h.TLS, err)
	}
	return c, nil
}
