package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"
)

const python = "/usr/bin/python3"

// floors are the median costs of the bare operations, in seconds.
type floors struct{ exec, fsync, python float64 }

func measureFloors(work string) (floors, error) {
	var f floors
	var err error
	if f.exec, err = median(100, func() error { return exec.Command("/bin/true").Run() }); err != nil {
		return f, err
	}
	file, err := os.Create(filepath.Join(work, "fsync"))
	if err != nil {
		return f, err
	}
	defer file.Close()
	page := bytes.Repeat([]byte("x"), 4096)
	if f.fsync, err = median(100, func() error {
		if _, err := file.Write(page); err != nil {
			return err
		}
		return file.Sync()
	}); err != nil {
		return f, err
	}
	f.python, err = median(20, func() error { return exec.Command(python, "-c", "pass").Run() })
	return f, err
}

// median returns the median time of n calls of f, in seconds.
func median(n int, f func() error) (float64, error) {
	all := make([]float64, 0, n)
	for range n {
		t := time.Now()
		if err := f(); err != nil {
			return 0, err
		}
		all = append(all, time.Since(t).Seconds())
	}
	return mid(all), nil
}

func mid(all []float64) float64 {
	slices.Sort(all)
	return all[len(all)/2]
}
