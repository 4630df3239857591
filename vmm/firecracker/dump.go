package firecracker

import (
	"bufio"
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// region is a part of the guest's memory in Firecracker's address space.
type region struct {
	from, size int64 // in Firecracker's address space, bytes
	physical   int64 // the guest's physical address
}

// maxMaps bounds the list of a process's mappings, in bytes.
const maxMaps = 8 << 20

// On x86, memory that does not fit below the gap for devices continues at 4 GiB. The gap has one of two sizes,
// depending on Firecracker's version.
const above4G = 4 << 30

var gapBegins = []int64{3 << 30, 3328 << 20}

// Dump implements vmm.VM. Custody reads the memory from Firecracker's address space: Firecracker itself could write it to a
// file only.
func (v *vm) Dump(ctx context.Context, w io.Writer) (err error) {
	v.turn.Lock()
	defer v.turn.Unlock()
	frozen := v.frozen
	if err := v.set(ctx, true); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, v.set(context.WithoutCancel(ctx), frozen)) }()
	list, mem, err := v.process.Memory(ctx)
	if err != nil {
		return err
	}
	defer mem.Close()
	defer list.Close()
	maps, err := io.ReadAll(io.LimitReader(list, maxMaps))
	if err != nil {
		return err
	}
	regions, err := findMemory(maps, v.Memory)
	if err != nil {
		return err
	}
	if err := writeCore(ctx, w, mem, regions); err != nil {
		return fmt.Errorf("read the machine's memory: %w", err)
	}
	return nil
}

// findMemory finds the guest's memory of size bytes in the list of a process's mappings (proc_pid_maps(5)). In a restored
// machine it is a mapping of the memory file; otherwise it is known by its size.
func findMemory(maps []byte, size int64) ([]region, error) {
	var whole, low, high *region
	for lines := bufio.NewScanner(bytes.NewReader(maps)); lines.Scan(); {
		from, length, path, ok := parseMapping(lines.Text())
		if !ok || path != "" && path != "/"+memoryFile {
			continue
		}
		switch {
		case length == size && (size <= gapBegins[0] || slices.Contains(gapBegins, size)):
			whole = &region{from, length, 0}
		case length < size && slices.Contains(gapBegins, length):
			low = &region{from, length, 0}
		case slices.Contains(gapBegins, size-length):
			high = &region{from, length, above4G}
		}
	}
	switch {
	case whole != nil:
		return []region{*whole}, nil
	case low != nil && high != nil && low.size+high.size == size:
		return []region{*low, *high}, nil
	}
	return nil, errors.New("the machine's memory was not found in firecracker's address space")
}

// parseMapping parses a line of /proc/PID/maps. It reports false for a mapping that cannot be written.
func parseMapping(line string) (from, length int64, path string, ok bool) {
	fields := strings.Fields(line)
	if len(fields) < 5 || !strings.HasPrefix(fields[1], "rw") {
		return 0, 0, "", false
	}
	begin, end, _ := strings.Cut(fields[0], "-")
	from, err1 := strconv.ParseInt(begin, 16, 64)
	to, err2 := strconv.ParseInt(end, 16, 64)
	if err1 != nil || err2 != nil || to < from {
		return 0, 0, "", false
	}
	return from, to - from, strings.Join(fields[5:], " "), true
}

// writeCore writes an ELF core file with the regions.
func writeCore(ctx context.Context, w io.Writer, mem io.ReaderAt, regions []region) error {
	const headers = 64
	head := elf.Header64{
		Type: uint16(elf.ET_CORE), Machine: uint16(elf.EM_X86_64), Version: uint32(elf.EV_CURRENT), Phoff: headers,
		Ehsize: headers, Phentsize: 56, Phnum: uint16(len(regions)),
	}
	copy(head.Ident[:], []byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)})
	if err := binary.Write(w, binary.LittleEndian, &head); err != nil {
		return err
	}
	at := uint64(headers + 56*len(regions))
	for _, r := range regions {
		p := elf.Prog64{Type: uint32(elf.PT_LOAD), Off: at, Paddr: uint64(r.physical), Filesz: uint64(r.size), Memsz: uint64(r.size)}
		if err := binary.Write(w, binary.LittleEndian, &p); err != nil {
			return err
		}
		at += uint64(r.size)
	}
	buf := make([]byte, 1<<20)
	defer clear(buf)
	for _, r := range regions {
		for done := int64(0); done < r.size; {
			if err := ctx.Err(); err != nil {
				return err
			}
			n, err := mem.ReadAt(buf[:min(int64(len(buf)), r.size-done)], r.from+done)
			if err != nil {
				return err
			}
			if _, err := w.Write(buf[:n]); err != nil {
				return err
			}
			done += int64(n)
		}
	}
	return nil
}
