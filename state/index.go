package state

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// The plaintext of a snapshot is the chunks of its parts in the order in which they were written, the index in JSON, and the
// offset of the index as 8 bytes, big endian.
const (
	maxIndex    = 16 << 20
	maxParts    = 16
	maxPartName = 32
	trailerSize = 8
	maxSize     = 1 << 40 // bytes of a part
)

// index lists the parts.
type index struct {
	Parts []*part `json:"parts"`
}

// part is one part: a byte stream, or pages.
type part struct {
	Name   string  `json:"name"`
	Size   int64   `json:"size"` // of the stream, or of the file that the pages belong to
	Pages  bool    `json:"pages,omitempty"`
	Chunks []chunk `json:"chunks"`
}

// chunk is a part of a part. It is compressed if Stored is less than Plain.
type chunk struct {
	At     int64 `json:"at"`     // in the plaintext
	Stored int   `json:"stored"` // bytes
	Plain  int   `json:"plain"`  // bytes
}

// validPart reports whether a part can have this name: lower case letters, digits and '-'.
func validPart(name string) bool {
	return name != "" && len(name) <= maxPartName && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}

// find returns the part with this name, or nil.
func (x index) find(name string) *part {
	for _, p := range x.Parts {
		if p.Name == name {
			return p
		}
	}
	return nil
}

// encode returns the index and the trailer, if the chunks before them have end bytes.
func (x index) encode(end int64) ([]byte, error) {
	text, err := json.Marshal(x)
	if err == nil && len(text) > maxIndex {
		err = errors.New("the paused state has too many chunks")
	}
	return binary.BigEndian.AppendUint64(text, uint64(end)), err
}

// readIndex reads the index at the end of the plaintext.
func readIndex(t *plaintext) (index, error) {
	trailer := make([]byte, trailerSize)
	if t.size < trailerSize {
		return index{}, altered(errors.New("it has no index"))
	}
	if err := t.read(trailer, t.size-trailerSize); err != nil {
		return index{}, err
	}
	end := binary.BigEndian.Uint64(trailer)
	if end > uint64(t.size-trailerSize) || t.size-trailerSize-int64(end) > maxIndex {
		return index{}, altered(errors.New("its index is not where it must be"))
	}
	text := make([]byte, t.size-trailerSize-int64(end))
	if err := t.read(text, int64(end)); err != nil {
		return index{}, err
	}
	x, err := parseIndex(text, int64(end))
	return x, altered(err)
}

// parseIndex parses an index of chunks that have end bytes.
func parseIndex(text []byte, end int64) (index, error) {
	var x index
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&x); err != nil {
		return index{}, fmt.Errorf("its index: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return index{}, errors.New("its index is followed by something")
	}
	if len(x.Parts) > maxParts {
		return index{}, fmt.Errorf("it has %d parts, more than %d", len(x.Parts), maxParts)
	}
	stored, names := int64(0), map[string]bool{}
	for _, p := range x.Parts {
		if p == nil || !validPart(p.Name) || names[p.Name] {
			return index{}, errors.New("a part has no valid name, or that of another")
		}
		names[p.Name] = true
		n, err := p.check(end)
		if err != nil {
			return index{}, fmt.Errorf("part %s: %w", p.Name, err)
		}
		stored += n
	}
	if stored != end {
		return index{}, fmt.Errorf("its chunks have %d bytes, and its index lists %d", end, stored)
	}
	return x, nil
}

// check checks the chunks of a part, and returns their bytes in the file.
func (p *part) check(end int64) (stored int64, err error) {
	if p.Size < 0 || p.Size > maxSize || p.Pages && p.Size%PageSize != 0 {
		return 0, fmt.Errorf("it cannot have %d bytes", p.Size)
	}
	last, plain := int64(0), int64(0)
	for _, c := range p.Chunks {
		if c.Plain <= 0 || c.Plain > maxChunk || c.Stored <= 0 || c.Stored > c.Plain || c.At < last || c.At > end-int64(c.Stored) {
			return 0, errors.New("a chunk is too large or not where it must be")
		}
		last = c.At + int64(c.Stored)
		plain += int64(c.Plain)
		stored += int64(c.Stored)
	}
	if !p.Pages && plain != p.Size {
		return 0, fmt.Errorf("its chunks have %d bytes instead of %d", plain, p.Size)
	}
	return stored, nil
}
