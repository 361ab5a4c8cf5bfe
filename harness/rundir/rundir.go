// Package rundir manages a run's folder: where files are, which process works in it, and the two
// small files that describe the run.
//
//	plan.json             what the run will do (record.Plan); its presence makes a folder a run folder
//	run.json              what was learned while running (record.Run)
//	lock                  which process works in it: host, boot, process
//	shell.sock            where that process lets its user into sandboxes (harness/attach)
//	journal/  blobs/      the primary data (harness/journal, harness/blob)
//	parquet/<table>/      derived data
//	scratch/              files of the running process; emptied by the next one
//
// [Create] and [Open] lock the folder for one process at a time; [View] opens it for reading at any
// time. Paths are made from IDs alone, because file systems may ignore case and task names may be
// hostile.
package rundir

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/internal/fsutil"
)

const (
	planFile = "plan.json"
	runFile  = "run.json"
	lockFile = "lock"
)

// Version is the version of plan.json and run.json. A folder with a newer one is refused before
// anything in it is changed. It increases together with the journal's, so that an older evalrun
// stops at these files.
const Version = record.Version

var (
	// ErrNotARun means that the folder has no plan.json.
	ErrNotARun = errors.New("not a run folder")
	// ErrNewer means that a later version of evalrun made the folder.
	ErrNewer = errors.New("written by a later version of evalrun")
	// ErrDamaged means that plan.json or run.json is not as it was written.
	ErrDamaged = errors.New("is damaged")
	// ErrReadOnly means that the folder cannot be written.
	ErrReadOnly = errors.New("the run folder cannot be written")
	// ErrInUse means that another process works in the folder; the error is an *InUse.
	ErrInUse = errors.New("the run folder is in use")
	// ErrExists means that the folder for a new run already holds a run or other files.
	ErrExists = errors.New("the folder is not empty")
)

// A Dir is an open run folder.
type Dir struct {
	path     string
	plan     *record.Plan
	sum      string // SHA-256 of plan.json
	lock     *lock  // nil if opened with View
	previous *Owner
}

// Create creates and locks the folder path for a new run and writes its plan. The folder may exist
// if it is empty.
func Create(path string, plan *record.Plan) (*Dir, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("run folder: %w", err)
	}
	if err := os.MkdirAll(path, 0o755); err != nil {
		return nil, unwritable(path, err)
	}
	list, err := os.ReadDir(path)
	if err != nil {
		return nil, fmt.Errorf("run folder: %w", err)
	}
	if _, err := os.Lstat(filepath.Join(path, planFile)); err == nil {
		return nil, fmt.Errorf("%s holds a run already (%w): go on with it by `evalrun resume`, or name another folder",
			path, ErrExists)
	}
	for _, d := range list {
		switch d.Name() {
		case lockFile, planFile + partial: // left by a process that died before it wrote the plan
		default:
			return nil, fmt.Errorf("%s: %w and holds no run: name an empty or a new folder", path, ErrExists)
		}
	}
	d := &Dir{path: path, plan: plan}
	if err := d.acquire(); err != nil {
		return nil, err
	}
	if _, err := os.Lstat(d.file(planFile)); err == nil { // another process was faster
		d.Close()
		return nil, fmt.Errorf("%s holds a run already (%w): go on with it by `evalrun resume`, or name another folder",
			path, ErrExists)
	}
	if plan.V == 0 {
		plan.V = Version
	}
	if d.sum, err = writeJSON(d.file(planFile), plan); err != nil {
		d.Close()
		return nil, unwritable(path, err)
	}
	if err := fsutil.SyncDir(filepath.Dir(path)); err != nil {
		d.Close()
		return nil, fmt.Errorf("run folder: %w", err)
	}
	return d, nil
}

// New creates a folder below root, named after the time and the plan (see Name), and continues like
// Create.
func New(root string, plan *record.Plan) (*Dir, error) {
	base := Name(plan.Created, plan.Name)
	for i := 1; ; i++ {
		name := base
		if i > 1 {
			name = fmt.Sprintf("%s-%d", base, i)
		}
		if err := os.MkdirAll(root, 0o755); err != nil {
			return nil, unwritable(root, err)
		}
		path := filepath.Join(root, name)
		err := os.Mkdir(path, 0o755)
		if errors.Is(err, fs.ErrExist) && i < 1000 {
			continue
		}
		if err != nil {
			return nil, unwritable(path, err)
		}
		return Create(path, plan)
	}
}

// Open opens and locks a run's folder for writing.
func Open(path string) (*Dir, error) {
	d, err := View(path)
	if err != nil {
		return nil, err
	}
	if err := d.acquire(); err != nil {
		return nil, err
	}
	// Read the plan again: it may have changed before the lock was taken.
	if err := d.readPlan(); err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// View opens a run's folder for reading. Another process may be working in it.
func View(path string) (*Dir, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("run folder: %w", err)
	}
	if err := genuine(path); err != nil {
		return nil, fmt.Errorf("run folder: %w", err)
	}
	d := &Dir{path: path}
	return d, d.readPlan()
}

// readPlan reads plan.json and checks that it is the plan the run started with, because trials are
// identified by it.
func (d *Dir) readPlan() error {
	plan, sum, err := readPlan(d.path)
	if err != nil {
		return err
	}
	d.plan, d.sum = plan, sum
	var run record.Run
	if _, err := readJSON(d.file(runFile), &run.V, &run); err != nil || run.Run == "" {
		return nil // reported by whoever needs run.json
	}
	if run.Run != plan.Run || run.Plan != "" && run.Plan != sum {
		return fmt.Errorf("run folder %s: %s is damaged, or %s is: the one is not what the other says of it; put a "+
			"copy in its place", d.path, planFile, runFile)
	}
	return nil
}

func readPlan(path string) (_ *record.Plan, sum string, err error) {
	var plan record.Plan
	sum, err = readJSON(filepath.Join(path, planFile), &plan.V, &plan)
	if err == nil && (plan.Run == "" || plan.Created.IsZero()) {
		err = fmt.Errorf("%s %w: it is no plan", planFile, ErrDamaged)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		if _, err := os.Stat(path); err != nil {
			return nil, "", fmt.Errorf("%s is %w: there is no such folder; give one that `evalrun run` made, such as "+
				"runs/2026-11-21T093000Z-nightly", path, ErrNotARun)
		}
		return nil, "", fmt.Errorf("%s is %w (it has no %s): give one that `evalrun run` made, such as "+
			"runs/2026-11-21T093000Z-nightly", path, ErrNotARun, planFile)
	case errors.Is(err, ErrDamaged):
		return nil, "", fmt.Errorf("run folder %s: %w; put a copy in its place", path, err)
	case err != nil:
		return nil, "", fmt.Errorf("run folder %s: %w", path, err)
	}
	return &plan, sum, nil
}

// Path returns the absolute path of the folder.
func (d *Dir) Path() string { return d.path }

// Plan returns plan.json as read when the folder was opened.
func (d *Dir) Plan() *record.Plan { return d.plan }

// Locked reports whether this process holds the folder's lock.
func (d *Dir) Locked() bool { return d.lock != nil }

// Previous returns the last process that worked here and did not shut down in order, or nil. What
// it started may still exist.
func (d *Dir) Previous() *Owner { return d.previous }

// Journal, Blobs and Scratch return the folders of these parts. Parquet returns the folder of one
// table.
func (d *Dir) Journal() string { return d.file("journal") }
func (d *Dir) Blobs() string   { return d.file("blobs") }
func (d *Dir) Scratch() string { return d.file("scratch") }
func (d *Dir) Parquet(table string) string {
	return filepath.Join(d.path, "parquet", Safe(table))
}

// File returns the path of a derived file next to plan.json, such as summary.json.
func (d *Dir) File(name string) string { return d.file(Safe(name)) }

func (d *Dir) file(name string) string { return filepath.Join(d.path, name) }

// Run reads run.json. It returns an empty Run if there is none, and ErrDamaged if it cannot be
// parsed.
func (d *Dir) Run() (*record.Run, error) {
	var run record.Run
	_, err := readJSON(d.file(runFile), &run.V, &run)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err == nil && (run.Run == "" || run.Started.IsZero()):
		err = fmt.Errorf("%s %w: it is no record of a run", runFile, ErrDamaged)
		fallthrough
	case err != nil:
		return nil, fmt.Errorf("run folder %s: %w", d.path, err)
	}
	return &run, nil
}

// SetRunAside moves run.json into the folder to, under a name that is free there. It creates the
// folder if needed.
func (d *Dir) SetRunAside(to string) error {
	if d.lock == nil {
		return fmt.Errorf("run folder %s: open for reading only", d.path)
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		return unwritable(d.path, err)
	}
	name := filepath.Join(to, runFile)
	for i := 2; ; i++ {
		if _, err := os.Lstat(name); errors.Is(err, fs.ErrNotExist) {
			break
		}
		name = filepath.Join(to, fmt.Sprintf("%s.%d", runFile, i))
	}
	if err := os.Rename(d.file(runFile), name); err != nil {
		return unwritable(d.path, err)
	}
	return errors.Join(fsutil.SyncDir(to), fsutil.SyncDir(d.path))
}

// WriteRun writes run.json atomically.
func (d *Dir) WriteRun(run *record.Run) error {
	if d.lock == nil {
		return fmt.Errorf("run folder %s: open for reading only", d.path)
	}
	if run.V == 0 {
		run.V = Version
	}
	run.Plan = d.sum
	if _, err := writeJSON(d.file(runFile), run); err != nil {
		return unwritable(d.path, err)
	}
	return nil
}

// Close releases the folder. It may be called again.
func (d *Dir) Close() error {
	if d.lock == nil {
		return nil
	}
	l := d.lock
	d.lock = nil
	if err := l.release(); err != nil {
		return fmt.Errorf("run folder %s: giving it free: %w", d.path, err)
	}
	return nil
}

// Name returns the name of a run's folder: 2026-11-21T093000Z-nightly. Names sort by time and are
// valid on every file system.
func Name(now time.Time, name string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(name) {
		switch {
		case b.Len() >= 40:
		case r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			b.WriteRune(r)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
	}
	stamp := now.UTC().Format("2006-01-02T150405Z")
	if s := strings.Trim(b.String(), "-"); s != "" {
		return stamp + "-" + s
	}
	return stamp
}

// RunID returns a new run ID, which stays when the folder is moved or renamed. It consists of the
// time, so that IDs sort, and 50 random bits.
func RunID(now time.Time) string {
	return now.UTC().Format("20060102t150405") + "-" + strings.ToLower(rand.Text()[:10])
}

// Safe returns a file name for an ID. IDs made by evalrun stay as they are; anything else is
// hashed.
func Safe(id string) string {
	plain := id != "" && len(id) <= 64 && id[0] != '.' && id[0] != '-'
	for _, b := range []byte(id) {
		if !(b >= 'a' && b <= 'z' || b >= '0' && b <= '9' || b == '_' || b == '-' || b == '.') {
			plain = false
		}
	}
	if plain {
		return id
	}
	h := sha256.Sum256([]byte(id))
	return "x" + hex.EncodeToString(h[:12])
}

// unwritable converts a write error into ErrReadOnly where that applies.
func unwritable(path string, err error) error {
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
		return fmt.Errorf("%w: %w; copy %s to where you may write, name another folder, or use a command that only "+
			"reads (show, compare, export)",
			ErrReadOnly, err, path)
	}
	return fmt.Errorf("run folder %s: %w", path, err)
}
