package vmm

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
)

// PageSize is the size of the pages of ReadCore, in bytes.
const PageSize = 4096

const (
	// coreOverhead bounds what a core file contains beside the RAM: headers, notes, firmware.
	coreOverhead = 64 << 20
	// maxSegments bounds the parts of a core file. A machine has a handful of ranges of memory.
	maxSegments = 64
	// above4G is where RAM continues that does not fit below the devices of a PC.
	above4G = 4 << 30
	// readAtOnce is the size of ReadCore's buffer.
	readAtOnce = 64 * PageSize
)

// span is a range of the guest's physical addresses, in bytes.
type span struct{ from, size int64 }

// segment is a part of a core file that contains memory.
type segment struct {
	span
	at int64 // where it begins in the file
}

// ReadCore reads the core file that VM.Dump wrote of a machine with size bytes of RAM. It calls page once for each page of the RAM, with its
// offset in the machine's Image.Memory, in ascending order; b is valid during the call. Memory that is not RAM, such as firmware,
// is skipped. The file is the work of a machine monitor that a guest may control: ReadCore reads it to its end, but not more than the RAM and
// a bounded overhead, and returns an error unless it contains all of the RAM.
func ReadCore(r io.Reader, size int64, page func(offset int64, b []byte) error) error {
	if size <= 0 || size%PageSize != 0 || size > math.MaxInt64/2 {
		return fmt.Errorf("a machine cannot have %d bytes of RAM", size)
	}
	c := &coreReader{r: r, left: size + coreOverhead}
	segments, err := c.segments()
	if err != nil {
		return fmt.Errorf("core file: %w", err)
	}
	ram, err := findRAM(segments, size)
	if err != nil {
		return fmt.Errorf("core file: %w", err)
	}
	b := make([]byte, readAtOnce)
	defer clear(b)
	for _, s := range segments {
		if err := c.skipTo(s.at); err != nil {
			return fmt.Errorf("core file: %w", err)
		}
		if err := c.pages(s, ram, b, page); err != nil {
			return err
		}
	}
	if err := c.end(); err != nil {
		return fmt.Errorf("core file: %w", err)
	}
	return nil
}

var errTooLong = errors.New("it is longer than the machine's memory explains")

// coreReader reads a core file in order.
type coreReader struct {
	r        io.Reader
	at, left int64 // bytes that were read, and that may follow
}

// read fills b.
func (c *coreReader) read(b []byte) error {
	if int64(len(b)) > c.left {
		return errTooLong
	}
	n, err := io.ReadFull(c.r, b)
	c.at, c.left = c.at+int64(n), c.left-int64(n)
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// skipTo reads up to an offset in the file.
func (c *coreReader) skipTo(at int64) error {
	if at-c.at > c.left {
		return errTooLong
	}
	n, err := io.CopyN(io.Discard, c.r, at-c.at)
	c.at, c.left = c.at+n, c.left-n
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// pages reads a segment and calls page with each page of it that is in the RAM. b is a buffer.
func (c *coreReader) pages(s segment, ram ram, b []byte, page func(int64, []byte) error) error {
	for address, end := s.from, s.from+s.size; address < end; {
		part := b[:min(int64(len(b)), end-address)]
		if err := c.read(part); err != nil {
			return fmt.Errorf("core file: memory at %#x: %w", address, err)
		}
		for ; len(part) > 0; part, address = part[PageSize:], address+PageSize {
			offset, ok := ram.offset(address)
			if !ok {
				continue
			}
			if err := page(offset, part[:PageSize]); err != nil {
				return err
			}
		}
	}
	return nil
}

// end reads what follows the memory.
func (c *coreReader) end() error {
	n, err := io.Copy(io.Discard, io.LimitReader(c.r, c.left+1))
	if err == nil && n > c.left {
		err = errTooLong
	}
	return err
}

// The sizes of the headers of a 64-bit ELF file.
const (
	elfHeader     = 64
	programHeader = 56
	maxSkip       = 4096 // bounds what is between the header and the program headers
)

// segments reads the headers and returns the memory that the file contains, in the order of addresses and of the file.
func (c *coreReader) segments() ([]segment, error) {
	var head elf.Header64
	if err := c.decode(&head, elfHeader); err != nil {
		return nil, err
	}
	ident := []byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)}
	machine := elf.Machine(head.Machine)
	switch {
	case !bytes.HasPrefix(head.Ident[:], ident) || elf.Type(head.Type) != elf.ET_CORE || machine != elf.EM_X86_64 && machine != elf.EM_AARCH64:
		return nil, errors.New("it is not the 64-bit ELF core file of an x86-64 or arm64 machine")
	case head.Phoff < elfHeader || head.Phoff > maxSkip || head.Phentsize != programHeader:
		return nil, errors.New("its program headers are not where a core file has them")
	case head.Phnum > maxSegments:
		return nil, fmt.Errorf("it has %d program headers, which is more than %d", head.Phnum, maxSegments)
	}
	if err := c.skipTo(int64(head.Phoff)); err != nil { // section headers
		return nil, err
	}
	headers := make([]elf.Prog64, head.Phnum)
	for i := range headers {
		if err := c.decode(&headers[i], programHeader); err != nil {
			return nil, err
		}
	}
	var all []segment
	address, at := int64(0), c.at // where the next one may begin
	for i, p := range headers {
		if elf.ProgType(p.Type) != elf.PT_LOAD {
			continue // notes: the state of processors
		}
		s, err := parseSegment(p)
		if err == nil && (s.from < address || s.at < at) {
			err = errors.New("it overlaps an earlier one, or is not in order")
		}
		if err != nil {
			return nil, fmt.Errorf("program header %d: %w", i, err)
		}
		address, at = s.from+s.size, s.at+s.size
		all = append(all, s)
	}
	return all, nil
}

// decode reads a header of n bytes.
func (c *coreReader) decode(into any, n int) error {
	b := make([]byte, n)
	if err := c.read(b); err != nil {
		return err
	}
	_, err := binary.Decode(b, binary.LittleEndian, into)
	return err
}

// parseSegment checks a program header. The sums of its results do not overflow.
func parseSegment(p elf.Prog64) (segment, error) {
	const most = math.MaxInt64 / 2
	switch {
	case p.Filesz != p.Memsz:
		return segment{}, fmt.Errorf("%d of %d bytes of memory are in the file", p.Filesz, p.Memsz)
	case p.Paddr%PageSize != 0 || p.Filesz%PageSize != 0:
		return segment{}, errors.New("it contains no whole pages")
	case p.Paddr > most || p.Filesz > most || p.Off > most:
		return segment{}, errors.New("its addresses are too large")
	}
	return segment{span{int64(p.Paddr), int64(p.Filesz)}, int64(p.Off)}, nil
}

// ram are the physical addresses of a machine's RAM, in the order of its memory file.
type ram []span

// offset returns the offset of a physical address in the memory file, or false if it is not in the RAM.
func (m ram) offset(address int64) (int64, bool) {
	before := int64(0)
	for _, s := range m {
		if address >= s.from && address < s.from+s.size {
			return before + address - s.from, true
		}
		before += s.size
	}
	return 0, false
}

// findRAM finds the size bytes of RAM among the segments. RAM is one range of addresses, which begins at 0 on x86-64 and higher on
// arm64; on x86-64, what does not fit below the devices continues at 4 GiB. Segments that adjoin each other are one range, since
// firmware covers a part of the RAM there.
func findRAM(segments []segment, size int64) (ram, error) {
	var ranges []span
	for _, s := range segments {
		if n := len(ranges); n > 0 && ranges[n-1].from+ranges[n-1].size == s.from {
			ranges[n-1].size += s.size
		} else {
			ranges = append(ranges, s.span)
		}
	}
	for _, r := range ranges {
		if r.size >= size {
			return ram{{r.from, size}}, nil
		}
	}
	for i, r := range ranges {
		low := ranges[0]
		rest := size - low.size
		if i > 0 && low.from == 0 && r.from <= above4G && r.from+r.size >= above4G+rest {
			return ram{low, {above4G, rest}}, nil
		}
	}
	return nil, fmt.Errorf("it does not contain the machine's %d bytes of RAM", size)
}
