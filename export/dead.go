package export

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/durable"
	"github.com/custody-project/custody/internal/flock"
	"github.com/custody-project/custody/internal/regular"
)

// Letter is an event that could not be delivered, with the reason.
type Letter struct {
	ID       string     `json:"id"`
	At       time.Time  `json:"at"` // when it was buried
	Reason   string     `json:"reason"`
	Time     time.Time  `json:"time"` // of the event, like the fields below
	Severity Severity   `json:"severity"`
	Kind     audit.Kind `json:"kind,omitempty"`
	Tenant   string     `json:"tenant,omitempty"`
	Host     string     `json:"host,omitempty"`
	Run      string     `json:"run"`
	Seq      uint64     `json:"seq"`
	Format   string     `json:"format,omitempty"` // of Data; empty if it is the record
	Data     audit.Text `json:"data"`
}

func letter(i Item, format, reason string, at time.Time) Letter {
	return Letter{ID: i.ID, At: at.UTC(), Reason: reason, Time: i.Time, Severity: i.Severity, Kind: i.Kind, Tenant: i.Tenant,
		Host: i.Host, Run: i.Run, Seq: i.Seq, Format: format, Data: audit.Text(i.Data)}
}

// Item returns the event as an item of a Send.
func (l Letter) Item() Item {
	return Item{ID: l.ID, Time: l.Time, Severity: l.Severity, Kind: l.Kind, Tenant: l.Tenant, Host: l.Host,
		Run: l.Run, Seq: l.Seq, Data: []byte(l.Data)}
}

// Default limits of dead letters.
const (
	deadBytes = 16 << 20
	deadFiles = 4
)

// Dead are the dead letters of one sink: NAME.dead.ndjson, and older ones in NAME.dead.1.ndjson and so on. The oldest
// file is removed if there are too many; its letters are counted. The store still has their records.
// Several processes may use it concurrently.
type Dead struct {
	dir, name string
	bytes     int64 // of one file
	files     int
}

// OpenDead returns the dead letters of a sink; bytes and files bound them, 0 means 16 MiB and 4.
func OpenDead(dir, name string, bytes int64, files int) (*Dead, error) {
	if !validName.MatchString(name) {
		return nil, fmt.Errorf("%.80q: %w", name, ErrName)
	}
	if bytes == 0 {
		bytes = deadBytes
	}
	if files == 0 {
		files = deadFiles
	}
	return &Dead{dir: dir, name: name, bytes: bytes, files: max(files, 1)}, nil
}

// path returns the path of the n-th file, 0 being the newest.
func (d *Dead) path(n int) string {
	if n == 0 {
		return filepath.Join(d.dir, d.name+".dead.ndjson")
	}
	return filepath.Join(d.dir, fmt.Sprintf("%s.dead.%d.ndjson", d.name, n))
}

// claimed returns the path of the file of letters that are being sent again.
func (d *Dead) claimed() string { return filepath.Join(d.dir, d.name+".redrive.ndjson") }

// locked calls f while no other process changes the files.
func (d *Dead) locked(ctx context.Context, f func() error) (err error) {
	l, err := regular.OpenFile(filepath.Join(d.dir, d.name+".dead.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	if err := flock.Lock(ctx, l, unix.LOCK_EX); err != nil {
		return err
	}
	return f()
}

// add appends letters durably; dropped are the letters that were removed for lack of space.
func (d *Dead) add(ctx context.Context, letters ...Letter) (dropped uint64, err error) {
	var lines []byte
	for _, l := range letters {
		b, err := json.Marshal(l)
		if err != nil {
			return 0, err
		}
		lines = append(append(lines, b...), '\n')
	}
	err = d.locked(ctx, func() (err error) {
		dropped, err = d.rotate(int64(len(lines)))
		return errors.Join(err, appendLines(d.path(0), lines))
	})
	return dropped, err
}

// rotate makes space for more bytes in the newest file.
func (d *Dead) rotate(more int64) (dropped uint64, err error) {
	info, err := os.Stat(d.path(0))
	if errors.Is(err, fs.ErrNotExist) || err == nil && (info.Size() == 0 || info.Size()+more <= d.bytes) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	for n := d.files - 1; n >= 0; n-- {
		if n == d.files-1 {
			if dropped, err = countLines(d.path(n)); err == nil {
				err = os.Remove(d.path(n))
			}
		} else {
			err = os.Rename(d.path(n), d.path(n+1))
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return dropped, err
		}
	}
	return dropped, nil
}

// appendLines durably appends complete lines to a file. It first ends a torn line.
func appendLines(path string, lines []byte) error {
	f, err := regular.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	if torn, err := endsTorn(f); err != nil || torn {
		lines = append([]byte{'\n'}, lines...)
	}
	_, err = f.Write(lines)
	return errors.Join(err, f.Sync(), f.Close(), durable.SyncDir(filepath.Dir(path)))
}

func endsTorn(f *os.File) (bool, error) {
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return false, err
	}
	last := make([]byte, 1)
	_, err = f.ReadAt(last, info.Size()-1)
	return last[0] != '\n', err
}

// Count returns how many letters there are.
func (d *Dead) Count() (n uint64, err error) {
	for _, path := range d.paths() {
		lines, err := countLines(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return n, err
		}
		n += lines
	}
	return n, nil
}

// paths returns the paths of all possible files, oldest letters first.
func (d *Dead) paths() []string {
	paths := []string{d.claimed()}
	for n := d.files - 1; n >= 0; n-- {
		paths = append(paths, d.path(n))
	}
	return paths
}

func countLines(path string) (n uint64, err error) {
	f, err := regular.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	r := bufio.NewReader(f)
	for {
		line, err := r.ReadSlice('\n')
		if len(line) > 0 && line[len(line)-1] == '\n' {
			n++
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return n, err
		}
	}
}

// Letters yields the dead letters, oldest first. It skips an invalid line, torn by a kill.
func (d *Dead) Letters() iter.Seq2[Letter, error] {
	return func(yield func(Letter, error) bool) {
		for _, path := range d.paths() {
			for l, err := range lettersOf(path) {
				if !yield(l, err) || err != nil {
					return
				}
			}
		}
	}
}

func lettersOf(path string) iter.Seq2[Letter, error] {
	return func(yield func(Letter, error) bool) {
		f, err := regular.Open(path)
		if errors.Is(err, fs.ErrNotExist) {
			return
		}
		if err != nil {
			yield(Letter{}, err)
			return
		}
		defer f.Close()
		r := bufio.NewReader(f)
		for {
			line, err := r.ReadBytes('\n')
			var l Letter
			if len(line) > 1 && json.Unmarshal(line, &l) == nil && !yield(l, nil) {
				return
			}
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				yield(Letter{}, err)
				return
			}
		}
	}
}

// claim moves all letters aside, for one caller to send again. They include letters
// that an earlier caller claimed and did not finish.
func (d *Dead) claim(ctx context.Context) error {
	return d.locked(ctx, func() error {
		for n := d.files - 1; n >= 0; n-- {
			b, err := regular.ReadFile(d.path(n))
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			// After a kill between the two, letters are in both files and are sent twice.
			if err := errors.Join(err, appendLines(d.claimed(), b)); err != nil {
				return err
			}
			if err := os.Remove(d.path(n)); err != nil {
				return err
			}
		}
		return nil
	})
}

// release ends a claim: all letters were sent, or are dead letters again.
func (d *Dead) release() error {
	err := os.Remove(d.claimed())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Forget removes the letters of one erased record. It returns their number.
func (d *Dead) Forget(ctx context.Context, run string, seq uint64) (n int, err error) {
	return d.forget(ctx, func(l Letter) bool { return l.Run == run && l.Seq == seq })
}

// ForgetRun removes the letters of a whole deleted run. It returns their number.
func (d *Dead) ForgetRun(ctx context.Context, run string) (n int, err error) {
	return d.forget(ctx, func(l Letter) bool { return l.Run == run })
}

func (d *Dead) forget(ctx context.Context, those func(Letter) bool) (n int, err error) {
	err = d.locked(ctx, func() error {
		for _, path := range d.paths() {
			gone, err := forget(path, those)
			if n += gone; err != nil {
				return err
			}
		}
		return nil
	})
	return n, err
}

// forget rewrites a file without some letters, and replaces the old one.
func forget(path string, those func(Letter) bool) (n int, err error) {
	var kept []byte
	for l, err := range lettersOf(path) {
		if err != nil {
			return 0, err
		}
		if those(l) {
			n++
			continue
		}
		b, err := json.Marshal(l)
		if err != nil {
			return 0, err
		}
		kept = append(append(kept, b...), '\n')
	}
	if n == 0 {
		return 0, nil
	}
	if err := os.Remove(path + ".new"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	if err := appendLines(path+".new", kept); err != nil {
		return 0, err
	}
	return n, errors.Join(os.Rename(path+".new", path), durable.SyncDir(filepath.Dir(path)))
}
