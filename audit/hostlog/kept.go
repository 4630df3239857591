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
)

// keptMax is how large the file of kept checkpoints gets, in bytes.
const keptMax = 8 << 20

// tailMax is more than the last checkpoints have, whatever witnesses added to them.
const tailMax = 256 << 10

// kept is the file of published checkpoints: signed notes one behind the other, each followed by
// an empty line, so that a note ends where an empty line follows a signature. Who appends holds
// the publish lock.
type kept struct {
	path string
	keys keys
	max  int64 // bytes; thinned out beyond
}

func newKept(dir string, k keys) kept { return kept{path: keptPath(dir), keys: k, max: keptMax} }

func keptPath(dir string) string { return dir + ".checkpoints" }

// last returns the newest, or the zero Checkpoint if there is none. A torn tail is passed over:
// the file "checkpoint" has what was being written.
func (k kept) last() (Checkpoint, error) {
	f, err := os.Open(k.path)
	if errors.Is(err, fs.ErrNotExist) {
		return Checkpoint{}, nil
	}
	if err != nil {
		return Checkpoint{}, err
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return Checkpoint{}, err
	}
	from := max(0, size-tailMax)
	tail := make([]byte, size-from)
	if _, err := f.ReadAt(tail, from); err != nil && !errors.Is(err, io.EOF) {
		return Checkpoint{}, err
	}
	notes, _ := splitNotes(tail)
	if len(notes) == 0 {
		return Checkpoint{}, nil
	}
	signed := notes[len(notes)-1]
	if from > 0 && len(notes) == 1 {
		return Checkpoint{}, fmt.Errorf("%w: %s has a checkpoint of more than %d bytes", ErrForged, k.path, tailMax)
	}
	c, err := k.keys.open(signed)
	if err != nil {
		return Checkpoint{}, fmt.Errorf("%s: %w", k.path, err)
	}
	return c, nil
}

// all returns every kept checkpoint, oldest first, each checked by itself and against the one before.
func (k kept) all() ([]Checkpoint, error) {
	data, err := os.ReadFile(k.path)
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

// splitNotes returns the notes in data and how many bytes they take; what is behind them is torn.
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

// add appends a checkpoint durably. What an earlier writer left unfinished is cut off; after an
// error the file is as it was.
func (k kept) add(c Checkpoint) error {
	f, err := os.OpenFile(k.path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	size, err := k.whole(f)
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
		return syncDir(filepath.Dir(k.path))
	}
	return nil
}

// whole returns where the last whole note of f ends.
func (k kept) whole(f *os.File) (int64, error) {
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return 0, err
	}
	from := max(0, size-tailMax)
	tail := make([]byte, size-from)
	if _, err := f.ReadAt(tail, from); err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	_, n := splitNotes(tail)
	if from > 0 && n == 0 {
		return 0, fmt.Errorf("%w: %s ends in what is no checkpoint", ErrForged, k.path)
	}
	return from + int64(n), nil
}

// thin leaves out every second checkpoint of the older half, but never the first.
func (k kept) thin() error {
	data, err := os.ReadFile(k.path)
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
	return replace(k.path, out.Bytes())
}
