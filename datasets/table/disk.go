package table

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync"

	"github.com/evalrun/evalrun/datasets"
	"github.com/evalrun/evalrun/internal/fsutil"
)

// Limits of a decompressed file: a constant, plus a multiple of the file's size. Text compresses to
// a tenth or a twentieth; a file made to fill a disk, to a thousandth.
var unpacksTo, unpacksBy int64 = 1 << 30, 50

// MaxUnpacked returns the maximum decompressed size of a file of size bytes: 1 GiB plus 50 times
// its size. It applies to all formats.
func MaxUnpacked(size int64) int64 { return unpacksTo + unpacksBy*size }

// TooLarge returns the error for a file that exceeds MaxUnpacked.
func TooLarge(limit int64) error {
	return fmt.Errorf("it is more than %d MiB, far more than the file's size lets expect", limit>>20)
}

// A Disk is a file on disk. If its name ends in .gz, it is decompressed to an unnamed temporary
// file, so that rows can be read again from any offset without decompressing everything before
// them, and nothing is left behind.
type Disk struct {
	Name string // its path

	mu   sync.Mutex
	open *os.File
	size int64
	was  fs.FileInfo // the file's info when it was first opened
}

// Reader returns the whole content for random access, and its size. It opens the file once and
// keeps it open, so that replacing the file does not affect a run. Errors are *[datasets.Fatal].
func (d *Disk) Reader() (r io.ReaderAt, size int64, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open != nil {
		return d.open, d.size, nil
	}
	f, err := d.unpacked()
	if err == nil {
		var info fs.FileInfo
		if info, err = f.Stat(); err == nil {
			d.open, d.size = f, info.Size()
			return f, d.size, nil
		}
		f.Close()
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = errors.New("no such file")
	}
	return nil, 0, &datasets.Fatal{Place: d.Name, Err: err}
}

// Close closes the file if it is open. A later Reader opens it again and returns an error if the
// file was replaced or modified.
func (d *Disk) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open == nil {
		return nil
	}
	f := d.open
	d.open = nil
	return f.Close()
}

// Again returns a second Disk for the same file, to be opened and closed separately.
func (d *Disk) Again() *Disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	return &Disk{Name: d.Name, was: d.was}
}

func (d *Disk) unpacked() (*os.File, error) {
	f, err := fsutil.Open(d.Name)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && d.was != nil && !(os.SameFile(info, d.was) && info.Size() == d.was.Size() &&
		info.ModTime().Equal(d.was.ModTime())) {
		err = errors.New("the file has changed since it was first read")
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	d.was = info
	if !strings.HasSuffix(d.Name, ".gz") {
		return f, nil
	}
	defer f.Close()
	z, err := gzip.NewReader(bufio.NewReaderSize(f, 1<<18))
	if err != nil {
		return nil, fmt.Errorf("unpacking: %w", err)
	}
	tmp, err := os.CreateTemp("", "evalrun-rows-*")
	if err != nil {
		return nil, err
	}
	os.Remove(tmp.Name())
	limit := MaxUnpacked(info.Size())
	n, err := io.Copy(tmp, io.LimitReader(z, limit+1))
	if err == nil && n > limit {
		err = fmt.Errorf("%w, and it may have no end; if it is right, unpack it with gunzip first", TooLarge(limit))
	}
	if err != nil {
		tmp.Close()
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = errors.New("the file is cut short; fetch it again")
		}
		return nil, fmt.Errorf("unpacking: %w", err)
	}
	return tmp, nil
}
