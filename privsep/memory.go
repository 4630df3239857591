package privsep

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// MaxMemory is the maximum size in bytes of a value in memory.
const MaxMemory = 64 << 20

// Memory returns a file in memory with a value in JSON, to be sent as a descriptor: a value that is too long for a message, or that
// must not stay in the memory of either process.
func Memory(name string, v any) (*os.File, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	defer clear(text)
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	f := os.NewFile(uintptr(fd), name)
	if _, err := f.WriteAt(text, 0); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// FromMemory decodes the value of a file that Memory returned, overwrites it and closes the file. The value must have no unknown fields.
func FromMemory(f *os.File, into any) error { return FromMemoryUpTo(MaxMemory, f, into) }

// FromMemoryUpTo is FromMemory for a value of at most limit bytes.
func FromMemoryUpTo(limit int64, f *os.File, into any) (err error) {
	defer func() { err = errors.Join(err, f.Close()) }()
	// Only a file in memory has seals. Another one could be of a file system that does not answer.
	if _, err := unix.FcntlInt(f.Fd(), unix.F_GET_SEALS, 0); err != nil {
		return fmt.Errorf("the value is in no file in memory: %w", err)
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() || info.Size() > limit {
		return fmt.Errorf("a value of %d bytes in a file of type %s is not accepted", info.Size(), info.Mode().Type())
	}
	text := make([]byte, info.Size())
	defer clear(text)
	if _, err := f.ReadAt(text, 0); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if _, err := f.WriteAt(make([]byte, len(text)), 0); err != nil {
		return err
	}
	return Decode(text, into)
}
