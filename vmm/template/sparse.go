package template

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// makeSparse makes holes where a file holds nothing but zeros. The guest's
// kernel zeroes all free memory once (init_on_free), and so writes to most of
// the file; on the disk it takes only what is used.
func makeSparse(path string) error {
	const block = 64 << 10
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	buf, zeros := make([]byte, block), make([]byte, block)
	for at := int64(0); ; at += block {
		n, err := io.ReadFull(f, buf)
		if err == io.EOF {
			return nil
		}
		if err != nil && err != io.ErrUnexpectedEOF {
			return err
		}
		if !bytes.Equal(buf[:n], zeros[:n]) {
			continue
		}
		err = unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, at, int64(n))
		if errors.Is(err, unix.EOPNOTSUPP) {
			return nil // it only takes more room
		}
		if err != nil {
			return fmt.Errorf("make holes in %s: %w", path, err)
		}
	}
}
