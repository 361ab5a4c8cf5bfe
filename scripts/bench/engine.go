package main

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
)

// An engine is Docker's API without a client library. It measures the cost of a trial's containers
// without any overhead.
type engine struct {
	socket string
	http   *http.Client
}

func newEngine() *engine {
	socket := strings.TrimPrefix(os.Getenv("DOCKER_HOST"), "unix://")
	if socket == "" {
		socket = "/var/run/docker.sock"
	}
	e := &engine{socket: socket}
	e.http = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 32,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", e.socket)
		}}}
	return e
}

// call makes one request. in is sent as JSON unless it is a reader. If out is not nil, the response
// is decoded into it.
func (e *engine) call(method, path string, in, out any) error {
	var body io.Reader
	kind := "application/json"
	switch v := in.(type) {
	case nil:
	case io.Reader:
		body, kind = v, "application/x-tar"
	default:
		raw, err := json.Marshal(v)
		if err != nil {
			return err
		}
		body = bytes.NewReader(raw)
	}
	req, err := http.NewRequest(method, "http://docker/v1.41"+path, body)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", kind)
	resp, err := e.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode >= 400 {
		return fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, bytes.TrimSpace(raw))
	}
	if out != nil {
		return json.Unmarshal(raw, out)
	}
	return nil
}

type object = map[string]any

// create creates and starts a container that sleeps.
func (e *engine) create(image string) (id string, err error) {
	var made struct{ ID string }
	err = e.call("POST", "/containers/create", object{
		"Image": image, "Cmd": []string{"sleep", "infinity"}, "HostConfig": object{"NetworkMode": "none"},
	}, &made)
	if err != nil {
		return "", err
	}
	return made.ID, e.call("POST", "/containers/"+made.ID+"/start", nil, nil)
}

// exec runs a command and waits for the end of its output.
func (e *engine) exec(id string, args ...string) error {
	var made struct{ ID string }
	if err := e.call("POST", "/containers/"+id+"/exec", object{"AttachStdout": true, "AttachStderr": true, "Cmd": args},
		&made); err != nil {
		return err
	}
	c, err := net.Dial("unix", e.socket)
	if err != nil {
		return err
	}
	defer c.Close()
	body := `{"Detach":false,"Tty":false}`
	fmt.Fprintf(c, "POST /v1.41/exec/%s/start HTTP/1.1\r\nHost: docker\r\nContent-Type: "+
		"application/json\r\nConnection: Upgrade\r\nUpgrade: tcp\r\nContent-Length: %d\r\n\r\n%s", made.ID, len(body),
		body)
	_, err = io.Copy(io.Discard, bufio.NewReader(c))
	return err
}

// put copies one small file into a directory.
func (e *engine) put(id, dir, name, text string) error {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(text))})
	io.WriteString(w, text)
	w.Close()
	return e.call("PUT", "/containers/"+id+"/archive?path="+dir, &b, nil)
}

func (e *engine) get(id, name string) error {
	return e.call("GET", "/containers/"+id+"/archive?path="+name, nil, nil)
}

func (e *engine) remove(id string) error {
	return e.call("DELETE", "/containers/"+id+"?force=1&v=1", nil, nil)
}

// trial performs the minimum work of a trial: create, run the agent's command, copy tests, verify,
// read the reward, remove.
func (e *engine) trial(image string) error {
	id, err := e.create(image)
	if err != nil {
		return err
	}
	defer e.remove(id)
	for _, step := range []func() error{
		func() error { return e.exec(id, "bash", "-c", solve) },
		func() error { return e.put(id, "/tmp", "test.sh", verify) },
		func() error { return e.exec(id, "bash", "/tmp/test.sh") },
		func() error { return e.get(id, "/logs/verifier/reward.txt") },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}
