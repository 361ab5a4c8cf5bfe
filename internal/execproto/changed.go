package execproto

import (
	"bufio"
	"encoding/binary"
	"io"
)

// Kinds for what an agent changed and what a verifier used. Lists travel as data in records (see
// WriteRecord), since data frames may be split anywhere. The last record of the executor's is a gap
// (see EncodeGap); then comes the Result.
const (
	KindBaseline = 0x28 + iota // → Result
	KindChanged                // → a record for each FileChange
	KindMark                   // a record for each path, then EOF → a record for each that is not watched
	KindUsed                   // → a record for each path
)

// A FileChange is a difference between the files of the baseline and those of now.
type FileChange struct {
	Path string // bytes; need not be UTF-8
	What byte   // Added, Altered, Gone, Mounted or Setting
	// Meta says of an altered file that only its mode or owner seems to differ. Whoever may write to
	// a file can also set its modification time back, so of anything but a directory this is a
	// hint.
	Meta bool
	// Turned says of an altered file that a folder is where a file was, or the other way around. Links
	// are neither.
	Turned   bool
	Mode     uint32 // type and permissions, as in stat; 0 if gone
	UID, GID uint32
	Links    uint32
	Size     int64
	Target   string // of a symbolic link; of a Setting its name
}

// Mounted says that a file system was mounted, replaced or unmounted at the path. Setting says that
// something else differs there, such as the free space of a file system or the priority of process 1.
const (
	Mounted = 'm'
	Setting = 's'
)

func (c *FileChange) Encode(e *Enc) {
	e.Uint(uint64(c.What))
	e.String(c.Path)
	e.Bool(c.Meta)
	e.Bool(c.Turned)
	e.Uint(uint64(c.Mode))
	e.Uint(uint64(c.UID))
	e.Uint(uint64(c.GID))
	e.Uint(uint64(c.Links))
	e.Int(c.Size)
	e.String(c.Target)
}

// FileChange decodes a FileChange.
func (d *Dec) FileChange() FileChange {
	return FileChange{What: byte(d.Uint()), Path: d.String(), Meta: d.Bool(), Turned: d.Bool(),
		Mode: uint32(d.Uint()), UID: uint32(d.Uint()), GID: uint32(d.Uint()), Links: uint32(d.Uint()), Size: d.Int(), Target: d.String()}
}

// EncodeGap returns the last record of a list: why the list is not complete, or "".
func EncodeGap(why string) string { return "\x00" + why }

// DecodeGap is the inverse of EncodeGap. It reports whether the record is the last one; the others
// begin with the slash of a path or the kind of a change.
func DecodeGap(record []byte) (why string, last bool) {
	if len(record) == 0 || record[0] != 0 {
		return "", false
	}
	return string(record[1:]), true
}

// MaxRecord is the maximum length of a record.
const MaxRecord = 64 << 10

// WriteRecord writes a record to w, which should be buffered.
func WriteRecord(w *bufio.Writer, body string) error {
	var n [binary.MaxVarintLen64]byte
	if _, err := w.Write(n[:binary.PutUvarint(n[:], uint64(len(body)))]); err != nil {
		return err
	}
	_, err := w.WriteString(body)
	return err
}

// ReadRecord reads the next record. It returns io.EOF at the end of the stream. The record is valid
// until the next call with the same buffer.
func ReadRecord(r *bufio.Reader, buf []byte) ([]byte, error) {
	n, err := binary.ReadUvarint(r)
	if err != nil {
		return nil, err
	}
	if n > MaxRecord {
		return nil, ErrMalformed
	}
	if uint64(cap(buf)) < n {
		buf = make([]byte, n)
	}
	buf = buf[:n]
	if _, err := io.ReadFull(r, buf); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	return buf, nil
}
