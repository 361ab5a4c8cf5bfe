package fsutil

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	pipe, socket, file := filepath.Join(dir, "pipe"), filepath.Join(dir, "socket"), filepath.Join(dir, "file")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := os.WriteFile(file, []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		pipe: "it is a named pipe", socket: "it is a socket", "/dev/zero": "it is a device", dir: "it is a folder",
		filepath.Join(dir, "none"): "no such file",
	} {
		if _, err := ReadFile(name, 0); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := OpenFile(pipe, os.O_WRONLY, 0); err == nil || !strings.Contains(err.Error(), "it is a named pipe") {
		t.Error(err)
	}
	if _, err := OpenIn(os.DirFS(dir), "pipe"); err == nil || !strings.Contains(err.Error(), "it is a named pipe") {
		t.Error(err)
	}
	if b, err := ReadFile(file, 5); string(b) != "hello" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
	if _, err := ReadFile(file, 4); err == nil {
		t.Error("the limit was not kept")
	}
}
