package cell

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

// The first process of a cell's pid namespace only has to exist: when it
// ends the kernel kills all others, and orphans become its children. It
// ignores SIGCHLD, which execve preserves, so that the kernel reaps them.
// It only sleeps, which takes one page of memory and no C
// compiler: an ELF header, one program header and the code below.

const (
	elfBase   = 0x10000
	elfHeader = 64
	elfProg   = 56
)

// reaperImage returns the executable.
func reaperImage() []byte {
	size := uint64(elfHeader + elfProg + len(reaperCode))
	var b bytes.Buffer
	b.Write([]byte{0x7f, 'E', 'L', 'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0}) // 64 bits, little endian, version 1
	for _, field := range []any{
		uint16(2), elfMachine, uint32(1), // an executable, version 1
		uint64(elfBase + elfHeader + elfProg), // entry
		uint64(elfHeader), uint64(0),          // program headers; no sections
		uint32(0), uint16(elfHeader), uint16(elfProg), uint16(1), uint16(0), uint16(0), uint16(0),

		uint32(1), uint32(5), // load, to be read and executed
		uint64(0), uint64(elfBase), uint64(elfBase), size, size, uint64(0x1000),
	} {
		binary.Write(&b, binary.LittleEndian, field)
	}
	b.Write(reaperCode)
	return b.Bytes()
}

// reaperFile stores the executable in a sealed file.
func reaperFile() (fd int, err error) {
	fd, err = unix.MemfdCreate("cell", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return -1, fmt.Errorf("make the cell's first process: %w", err)
	}
	if _, err := unix.Write(fd, reaperImage()); err != nil {
		return -1, fmt.Errorf("make the cell's first process: %w", err)
	}
	seals := unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		return -1, fmt.Errorf("seal the cell's first process: %w", err)
	}
	return fd, nil
}
