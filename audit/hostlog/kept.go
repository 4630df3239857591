package hostlog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/custody-project/custody/audit/durable"
	"github.com/custody-project/custody/internal/regular"
)

// keptMax is the maximum size of the file of kept checkpoints, in bytes.
const keptMax = 8 << 20

// The last two checkpoints usually fit in the last tailMin bytes, and always in tailMax bytes, whatever witnesses have
// added.
const (
	tailMin = 4 << 10
	tailMax = 256 << 10
)

// kept is the file of published checkpoints: signed notes, each followed by an empty line, so that a note ends where an
// empty line follows a signature. Its writer holds the publish lock.
type kept struct {
	path string
	keys keys
	max  int64 // in bytes; thin removes checkpoints beyond it
}

func newKept(dir string, k keys) kept { return kept{path: keptPath(dir), keys: k, max: keptMax} }

func keptPath(dir string) string { return dir + ".checkpoints" }

// last returns the newest checkpoint, or the zero Checkpoint if there is none. It ignores a torn tail: the file
// "checkpoint" has the checkpoint that was being written.
func (k kept) last() (Checkpoint, error) {
	f, err := regular.Open(k.path)
	if errors.Is(err, fs.ErrNotExist) {
		return Checkpoint{}, nil
	}
	if err != nil {
		return Checkpoint{}, err
	}
	defer f.Close()
	notes, _, err := k.tail(f)
	if err != nil || len(notes) == 0 {
		return Checkpoint{}, err
	}
	signed := notes[len(notes)-1]
	c, err := k.keys.open(signed)
	if err != nil {
		return Checkpoint{}, fmt.Errorf("%s: %w", k.path, err)
	}
	return c, nil
}

// all returns every kept checkpoint, oldest first. It verifies each, and compares it with its predecessor.
func (k kept) all() ([]Checkpoint, error) {
	data, err := regular.ReadFile(k.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	notes, _ := splitNotes(data)
	all := make([]Checkpoint, 0, len(notes))
	for _, signed := range notes {
		c, err := k.keys.open(signed)
		if err == nil && len(all) > 0 {
			err = c.follows(all[len(all)-1])
		}
		if err != nil {
			return all, fmt.Errorf("%s, checkpoint %d: %w", k.path, len(all), err)
		}
		all = append(all, c)
	}
	return all, nil
}

// splitNotes returns the notes in data and their total length in bytes; the rest is torn.
func splitNotes(data []byte) (notes [][]byte, whole int) {
	start, signed := 0, false
	for at := 0; at < len(data); {
		end := bytes.IndexByte(data[at:], '\n')
		if end < 0 {
			break
		}
		line := data[at : at+end]
		if at += end + 1; len(line) == 0 && signed {
			notes = append(notes, data[start:at-1:at-1])
			start, signed, whole = at, false, at
			continue
		}
		signed = bytes.HasPrefix(line, []byte("— "))
	}
	return notes, whole
}

// add appends a checkpoint durably. It truncates a torn tail of an earlier writer. After an error the file is
// unchanged.
func (k kept) add(c Checkpoint) error {
	f, err := regular.OpenFile(k.path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	_, size, err := k.tail(f)
	if err != nil {
		return err
	}
	if size > k.max {
		if err := k.thin(); err != nil {
			return err
		}
		return k.add(c)
	}
	if err := f.Truncate(size); err != nil {
		return err
	}
	record := append(slices.Clone(c.Note), '\n')
	_, err = f.WriteAt(record, size)
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		return errors.Join(err, f.Truncate(size))
	}
	if size == 0 {
		return durable.SyncDir(filepath.Dir(k.path))
	}
	return nil
}

// tail returns the last notes of f, and the offset at which the last one ends. It reads no more than is needed for the
// complete last note: the first that it returns may lack its beginning.
func (k kept) tail(f *os.File) (notes [][]byte, end int64, err error) {
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, 0, err
	}
	for n := int64(tailMin); ; n *= 4 {
		from := max(0, size-n)
		data := make([]byte, size-from)
		if _, err := f.ReadAt(data, from); err != nil && !errors.Is(err, io.EOF) {
			return nil, 0, err
		}
		notes, whole := splitNotes(data)
		if from == 0 || len(notes) > 1 {
			return notes, from + int64(whole), nil
		}
		if n >= tailMax {
			return nil, 0, fmt.Errorf("%w: the end of %s is not a checkpoint", ErrForged, k.path)
		}
	}
}

// thin removes every second checkpoint of the older half, but never the first.
func (k kept) thin() error {
	data, err := regular.ReadFile(k.path)
	if err != nil {
		return err
	}
	notes, _ := splitNotes(data)
	var out bytes.Buffer
	for i, n := range notes {
		if i < len(notes)/2 && i%2 == 1 {
			continue
		}
		out.Write(n)
		out.WriteByte('\n')
	}
	return durable.Replace(k.path, out.Bytes(), 0o600)
}
