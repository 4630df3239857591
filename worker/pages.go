package worker

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/custody-project/custody/vmm"
)

// The memory of a machine crosses a pipe as records in ascending order: the offset of a page (8 bytes, little endian) and its bytes. Of
// a page of zeros only the offset is sent, plus 1.

// pageWriter writes pages.
type pageWriter struct{ to *bufio.Writer }

// pagesBuffer is the size of the buffers of pages in bytes.
const pagesBuffer = 1 << 20

func newPageWriter(to io.Writer) pageWriter { return pageWriter{bufio.NewWriterSize(to, pagesBuffer)} }

var zeroPage [vmm.PageSize]byte

// page writes a page. It is called in ascending order.
func (w pageWriter) page(offset int64, page []byte) error {
	var head [8]byte
	if bytes.Equal(page, zeroPage[:]) {
		binary.LittleEndian.PutUint64(head[:], uint64(offset)|1)
		page = nil
	} else {
		binary.LittleEndian.PutUint64(head[:], uint64(offset))
	}
	if _, err := w.to.Write(head[:]); err != nil {
		return err
	}
	_, err := w.to.Write(page)
	return err
}

// ReadPages reads the memory of a machine with size bytes that a worker sends (Save). It calls pages with consecutive pages at an offset, in
// ascending order; b is valid during the call. It returns an error unless each page came once.
func ReadPages(r io.Reader, size int64, pages func(offset int64, b []byte) error) error {
	in := bufio.NewReaderSize(r, pagesBuffer)
	buf := make([]byte, pagesBuffer)
	defer clear(buf)
	for at := int64(0); at < size; {
		part := buf[:min(int64(len(buf)), size-at)]
		for i := 0; i < len(part); i += vmm.PageSize {
			if err := readPage(in, at+int64(i), part[i:i+vmm.PageSize]); err != nil {
				return err
			}
		}
		if err := pages(at, part); err != nil {
			return err
		}
		at += int64(len(part))
	}
	switch _, err := in.ReadByte(); {
	case err == nil:
		return fmt.Errorf("the worker sent more than the %d bytes of the machine's memory", size)
	case !errors.Is(err, io.EOF):
		return fmt.Errorf("the machine's memory: %w", err)
	}
	return nil
}

// readPage reads the page at an offset.
func readPage(in *bufio.Reader, offset int64, page []byte) error {
	var head [8]byte
	_, err := io.ReadFull(in, head[:])
	switch at := binary.LittleEndian.Uint64(head[:]); {
	case err != nil:
	case at == uint64(offset)|1:
		clear(page)
	case at == uint64(offset):
		_, err = io.ReadFull(in, page)
	default:
		return fmt.Errorf("the worker sent the page %#x of the machine's memory in place of %#x", at, offset)
	}
	if err != nil {
		return fmt.Errorf("the machine's memory at %#x: %w", offset, err)
	}
	return nil
}
