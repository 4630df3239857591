package channel

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"sync"
	"syscall"
	"time"

	"github.com/custody-project/custody/internal/symlink"
)

// Protect describes what copying out to a directory may change.
type Protect struct {
	// Guard has files and links that the host would execute not get their own names. Nil: all do.
	Guard Guard
	// From is the directory that was copied in: of its files, those that users other than the owner could write stay so.
	// Nil: none.
	From *SourceDir
	// Limit is the maximum number of bytes that are taken.
	Limit int64
}

// DestinationDir is a directory of the host as a Destination. Whatever its callers ask, nothing is
// written outside the directory nor through a link in it; links that lead out
// of it and setuid bits are refused. It is safe for concurrent use.
//
// A directory that it writes into is one that it made itself or found to be a
// real directory, component by component, so no link is ever written through;
// os.Root holds even if someone swaps one for a link meanwhile.
//
//	NewDestinationDir --> new --Open--> open --Close--> closed
type DestinationDir struct {
	dir     string
	protect Protect

	mu    sync.Mutex // guards the fields below, and is held during all operations but the writing of content
	root  *os.Root   // nil: not open
	over  bool       // it was closed
	dirs  map[string]bool
	parts map[PartID]*part
	last  PartID // that was given to a part
	left  int64  // remaining bytes of content
	made  int    // directories and parts so far
	names int    // bytes of their names
}

// part is a file or a link beside its place.
type part struct {
	path, as string
	time     time.Time // zero: not of a link
	complete bool
	failure  error // why it is not complete
}

// NewDestinationDir returns the Destination of a directory, which must exist when it is opened.
func NewDestinationDir(dir string, p Protect) *DestinationDir {
	if p.Guard == nil {
		p.Guard = unguarded{}
	}
	return &DestinationDir{dir: dir, protect: p, dirs: map[string]bool{".": true}, parts: map[PartID]*part{}, left: p.Limit}
}

// Open implements Destination.
func (d *DestinationDir) Open(context.Context) (err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.root != nil || d.over {
		return errOpened
	}
	d.root, err = os.OpenRoot(d.dir)
	return err
}

// Close implements Destination. After it, Open fails.
func (d *DestinationDir) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.over = true
	if d.root == nil {
		return nil
	}
	for id, p := range d.parts {
		d.root.Remove(p.path)
		delete(d.parts, id)
	}
	err := d.root.Close()
	d.root = nil
	return err
}

// begin checks a name. The caller holds mu.
func (d *DestinationDir) begin(name string) error {
	if d.root == nil {
		return errNotOpen
	}
	if !clean(name) {
		return errName
	}
	return nil
}

// count counts the name of a part or of a new directory. The bounds allow all that a CopyOut takes, and directories above it that
// the guest did not send. The caller holds mu.
func (d *DestinationDir) count(name string) error {
	d.made++
	d.names += len(name)
	if d.made > 2*maxEntries || d.names > 2*maxNames {
		return errTooMany
	}
	return nil
}

// Directory implements Destination.
func (d *DestinationDir) Directory(_ context.Context, name string, mode fs.FileMode) (ok bool, warning string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.begin(name); err != nil {
		return false, "", err
	}
	return d.directory(name, mode)
}

func (d *DestinationDir) directory(name string, mode fs.FileMode) (ok bool, warning string, err error) {
	if ok, known := d.dirs[name]; known {
		return ok, "", nil
	}
	if ok, warning, err = d.directory(path.Dir(name), 0o755); err != nil {
		return false, "", err
	}
	if err := d.count(name); err != nil {
		return false, "", err
	}
	if ok {
		warning = d.makeDirectory(name, mode)
		ok = warning == ""
	}
	d.dirs[name] = ok
	return ok, warning, nil
}

// makeDirectory makes or finds a directory, and returns why it may not be written into.
func (d *DestinationDir) makeDirectory(name string, mode fs.FileMode) (warning string) {
	info, err := d.root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		if err = d.root.Mkdir(name, (mode&fs.ModePerm|0o700)&^othersWrite); err == nil {
			return ""
		}
	}
	if err != nil {
		return fmt.Sprintf("directory %q could not be made: %v", name, err)
	}
	if !info.IsDir() {
		return fmt.Sprintf("directory %q: something else is in its place; skipped with all in it", name)
	}
	if why := d.protect.Guard.Folder(info); why != "" {
		return fmt.Sprintf("directory %q: %s; skipped with all in it", name, why)
	}
	return ""
}

// File implements Destination.
func (d *DestinationDir) File(_ context.Context, name string, a Attributes) (p Part, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.begin(name); err != nil {
		return p, err
	}
	if a.Size < 0 || a.Size > d.left {
		return p, tooLarge(name, a.Size, d.left)
	}
	if !d.dirs[path.Dir(name)] {
		return p, errDirectory
	}
	as, why := d.protect.Guard.File(name)
	if why != "" {
		p.Warnings = append(p.Warnings, renamed(name, as, why))
	}
	if !d.free(as) {
		p.Warnings = append(p.Warnings, isDirectory(as))
		return p, nil
	}
	made, err := d.newPart(name, as)
	if err != nil {
		return p, err
	}
	f, err := d.root.OpenFile(made.path, os.O_CREATE|os.O_EXCL|os.O_WRONLY|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return p, err
	}
	d.left -= a.Size
	made.time = a.Time
	mode := a.Mode & fs.ModePerm &^ (othersWrite &^ d.protect.From.othersWrite(name))
	p.ID, p.As, p.Content = d.keep(made), as, &content{dir: d, part: made, file: f, mode: mode, left: a.Size}
	return p, nil
}

// newPart returns a part that is not made yet. The caller holds mu.
func (d *DestinationDir) newPart(name, as string) (*part, error) {
	if len(d.parts) >= maxListed {
		return nil, errManyParts
	}
	if err := d.count(name); err != nil {
		return nil, err
	}
	return &part{path: path.Join(path.Dir(name), ".custody-"+rand.Text()), as: as}, nil
}

// keep keeps a part that was made. The caller holds mu.
func (d *DestinationDir) keep(p *part) PartID {
	d.last++
	d.parts[d.last] = p
	return d.last
}

// free reports whether name may be taken: by no one, or by what a rename replaces, which is all but a directory.
func (d *DestinationDir) free(name string) bool {
	info, err := d.root.Lstat(name)
	return err != nil || !info.IsDir()
}

// Link implements Destination.
func (d *DestinationDir) Link(_ context.Context, name, target string) (p Part, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.begin(name); err != nil {
		return p, err
	}
	skip := func(format string, args ...any) (Part, error) {
		p.Warnings = append(p.Warnings, fmt.Sprintf("symbolic link %q "+format, append([]any{name}, args...)...))
		return p, nil
	}
	if why := d.protect.Guard.Link(name); why != "" {
		return skip("skipped: on the host, %s", why)
	}
	if !symlink.StaysInside(name, target) || d.leadsOut(name, target) {
		return skip("leads out of the directory, to %.200q; skipped", target)
	}
	ok, warning, err := d.directory(path.Dir(name), 0o755)
	if err != nil {
		return p, err
	}
	if warning != "" {
		p.Warnings = append(p.Warnings, warning)
	}
	if !ok {
		return skip("skipped: its directory could not be used")
	}
	if !d.free(name) {
		p.Warnings = append(p.Warnings, isDirectory(name))
		return p, nil
	}
	made, err := d.newPart(name, name)
	if err != nil {
		return p, err
	}
	if err := d.root.Symlink(target, made.path); err != nil {
		return p, err
	}
	made.complete = true
	p.ID, p.As = d.keep(made), name
	return p, nil
}

// leadsOut follows the target through links that stand in the directory
// already, its owner's among them, which may lead anywhere.
func (d *DestinationDir) leadsOut(name, target string) bool {
	_, err := d.root.Stat(path.Join(path.Dir(name), target))
	return err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) && !errors.Is(err, syscall.ELOOP)
}

// Place implements Destination. It places nothing if one of the parts does not exist or is not complete.
func (d *DestinationDir) Place(_ context.Context, ids []PartID) (taken []PartID, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.root == nil {
		return nil, errNotOpen
	}
	once := map[PartID]bool{}
	for _, id := range ids {
		p := d.parts[id]
		switch {
		case p == nil || once[id]:
			return nil, errUnknownPart
		case p.failure != nil:
			return nil, p.failure
		case !p.complete:
			return nil, errUnfinished
		}
		once[id] = true
	}
	for _, id := range ids {
		p := d.parts[id]
		if !d.free(p.as) {
			taken = append(taken, id)
			d.root.Remove(p.path)
		} else if err := d.name(p); err != nil {
			return taken, err
		}
		delete(d.parts, id)
	}
	return taken, nil
}

// name gives a part its name.
func (d *DestinationDir) name(p *part) error {
	if usable(p.time) {
		if err := d.root.Chtimes(p.path, p.time, p.time); err != nil {
			return err
		}
	}
	return d.root.Rename(p.path, p.as)
}

// Drop implements Destination.
func (d *DestinationDir) Drop(_ context.Context, id PartID) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.parts[id]
	if p == nil || d.root == nil {
		return errUnknownPart
	}
	delete(d.parts, id)
	if err := d.root.Remove(p.path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// content writes the content of a file's part. One goroutine uses it.
type content struct {
	dir     *DestinationDir
	part    *part
	file    *os.File
	mode    fs.FileMode
	left    int64 // bytes to come
	failure error
}

// Write implements io.Writer. It takes no more bytes than were announced.
func (c *content) Write(b []byte) (int, error) {
	if int64(len(b)) > c.left {
		c.failure = errSize
		return 0, errSize
	}
	n, err := c.file.Write(b)
	c.left -= int64(n)
	if err != nil {
		c.failure = err
	}
	return n, err
}

// Close ends the content. It fails if bytes are missing; the part then cannot be placed.
func (c *content) Close() error {
	if c.failure == nil && c.left > 0 {
		c.failure = errSize
	}
	if c.failure == nil {
		c.failure = c.file.Chmod(c.mode)
	}
	if err := c.file.Close(); c.failure == nil {
		c.failure = err
	}
	c.dir.mu.Lock()
	defer c.dir.mu.Unlock()
	c.part.complete, c.part.failure = c.failure == nil, c.failure
	return c.failure
}
