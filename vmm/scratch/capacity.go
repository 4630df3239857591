package scratch

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
)

// Capacity returns how many bytes, and how many files and directories, fit on an empty disk of size bytes.
func Capacity(ctx context.Context, blanks string, size int64) (bytes, files int64, err error) {
	blank, err := blankDisk(ctx, blanks, size)
	if err != nil {
		return 0, 0, fmt.Errorf("scratch disk: %w", err)
	}
	defer blank.Close()
	// The superblock of ext4: https://docs.kernel.org/filesystems/ext4/globals.html#super-block
	super := make([]byte, 1024)
	if _, err := blank.ReadAt(super, 1024); err != nil {
		return 0, 0, fmt.Errorf("scratch disk: %w", err)
	}
	word := func(at int) int64 { return int64(binary.LittleEndian.Uint32(super[at:])) }
	if binary.LittleEndian.Uint16(super[0x38:]) != 0xef53 {
		return 0, 0, errors.New("scratch disk: it has no ext4 file system")
	}
	return (word(0xc) | word(0x158)<<32) * (1024 << word(0x18)), word(0x10), nil
}
