package vmm_test

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/custody-project/custody/vmm"
)

const mib = 1 << 20

// coreHead returns the headers of a core file with segments of these addresses and sizes, whose data follows in the same order.
func coreHead(machine elf.Machine, segments ...[2]uint64) []byte {
	head := elf.Header64{
		Type: uint16(elf.ET_CORE), Machine: uint16(machine), Version: uint32(elf.EV_CURRENT), Phoff: 64, Ehsize: 64, Phentsize: 56,
		Phnum: uint16(len(segments)) + 1,
	}
	copy(head.Ident[:], []byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)})
	at := uint64(64 + 56*(len(segments)+1))
	programs := []elf.Prog64{{Type: uint32(elf.PT_NOTE), Off: at, Filesz: notes, Memsz: notes}}
	at += notes
	for _, s := range segments {
		programs = append(programs, elf.Prog64{Type: uint32(elf.PT_LOAD), Off: at, Paddr: s[0], Filesz: s[1], Memsz: s[1]})
		at += s[1]
	}
	var b bytes.Buffer
	binary.Write(&b, binary.LittleEndian, head)
	binary.Write(&b, binary.LittleEndian, programs)
	b.Write(make([]byte, notes))
	return b.Bytes()
}

const notes = 100

// memory generates the data of segments: the first 8 bytes of each page are its physical address.
type memory struct {
	segments [][2]uint64
	done     uint64 // bytes of the first segment that were read
	page     bytes.Reader
}

func (m *memory) Read(b []byte) (int, error) {
	for m.page.Len() == 0 {
		for len(m.segments) > 0 && m.done == m.segments[0][1] {
			m.segments, m.done = m.segments[1:], 0
		}
		if len(m.segments) == 0 {
			return 0, io.EOF
		}
		m.page.Reset(append(binary.LittleEndian.AppendUint64(nil, m.segments[0][0]+m.done), make([]byte, vmm.PageSize-8)...))
		m.done += vmm.PageSize
	}
	return m.page.Read(b)
}

// TestReadCore: each page of the RAM is returned once, at its offset in the memory file. Firmware is not.
func TestReadCore(t *testing.T) {
	t.Parallel()
	const gib = 1 << 30
	for name, c := range map[string]struct {
		machine  elf.Machine
		size     int64
		segments [][2]uint64
		at       map[int64]uint64 // physical addresses of some pages, by offset
	}{
		"x86-64": {
			elf.EM_X86_64, 8 * mib, [][2]uint64{{0, 0xe0000}, {0xe0000, 0x20000}, {mib, 7 * mib}, {4*gib - 0x20000, 0x20000}},
			map[int64]uint64{0: 0, 0xe0000: 0xe0000, mib: mib, 8*mib - 4096: 8*mib - 4096},
		},
		"x86-64 with memory above 4 GiB": {
			elf.EM_X86_64, 12 * mib, [][2]uint64{{0, 0xe0000}, {0xe0000, 8*mib - 0xe0000}, {4*gib - 0x20000, 0x20000}, {4 * gib, 4 * mib}},
			map[int64]uint64{0: 0, 8*mib - 4096: 8*mib - 4096, 8 * mib: 4 * gib, 12*mib - 4096: 4*gib + 4*mib - 4096},
		},
		"arm64": {
			elf.EM_AARCH64, 8 * mib, [][2]uint64{{0, 4 * mib}, {gib, 8 * mib}},
			map[int64]uint64{0: gib, 8*mib - 4096: gib + 8*mib - 4096},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := io.MultiReader(bytes.NewReader(coreHead(c.machine, c.segments...)), &memory{segments: c.segments}, strings.NewReader("at the end"))
			next := int64(0)
			err := vmm.ReadCore(r, c.size, func(offset int64, b []byte) error {
				address := binary.LittleEndian.Uint64(b)
				if want, ok := c.at[offset]; offset != next || len(b) != vmm.PageSize || ok && want != address {
					t.Fatalf("%d bytes of address %#x at offset %#x; offset %#x and address %#x are expected", len(b), address, offset, next, want)
				}
				next += vmm.PageSize
				return nil
			})
			if err != nil || next != c.size {
				t.Errorf("%d of %d bytes: %v", next, c.size, err)
			}
		})
	}
}

// TestReadCoreRefuses: a core file that is damaged, incomplete or too long is an error.
func TestReadCoreRefuses(t *testing.T) {
	t.Parallel()
	whole := [][2]uint64{{0, mib}}
	edit := func(at int, b ...byte) func([]byte) []byte {
		return func(core []byte) []byte { copy(core[at:], b); return core }
	}
	const load = 64 + 56 // the program header of the memory
	for name, c := range map[string]struct {
		segments [][2]uint64
		change   func([]byte) []byte
		want     string
	}{
		"nothing":                {whole, func([]byte) []byte { return nil }, "unexpected EOF"},
		"text":                   {whole, edit(0, []byte("text")...), "not the 64-bit ELF core file"},
		"a program":              {whole, edit(16, byte(elf.ET_EXEC)), "not the 64-bit ELF core file"},
		"another machine":        {whole, edit(18, byte(elf.EM_386)), "not the 64-bit ELF core file"},
		"program headers moved":  {whole, edit(32, 0, 0x20), "are not where a core file has them"},
		"many program headers":   {whole, edit(56, 0xff, 0xff), "65535 program headers, which is more than 64"},
		"no program headers":     {whole, edit(56, 0, 0), "does not contain the machine's"},
		"headers end early":      {whole, func(b []byte) []byte { return b[:100] }, "unexpected EOF"},
		"memory ends early":      {whole, func(b []byte) []byte { return b[:len(b)-1] }, "memory at 0xc0000: unexpected EOF"},
		"no memory":              {nil, nil, "does not contain the machine's 1048576 bytes of RAM"},
		"less memory":            {[][2]uint64{{0, mib - 4096}}, nil, "does not contain the machine's 1048576 bytes of RAM"},
		"a gap":                  {[][2]uint64{{0, 4096}, {8192, mib - 4096}}, nil, "does not contain the machine's 1048576 bytes of RAM"},
		"a part of a page":       {[][2]uint64{{0, mib + 1}}, nil, "program header 1: it contains no whole pages"},
		"an address in a page":   {[][2]uint64{{1, mib}}, nil, "program header 1: it contains no whole pages"},
		"two of one address":     {[][2]uint64{{0, mib}, {4096, mib}}, nil, "program header 2: it overlaps an earlier one, or is not in order"},
		"not in order":           {[][2]uint64{{mib, mib}, {0, mib}}, nil, "program header 2: it overlaps an earlier one, or is not in order"},
		"a huge address":         {whole, edit(load+24+7, 0xff), "program header 1: its addresses are too large"},
		"data in the headers":    {whole, edit(load+8, 0, 0), "program header 1: it overlaps an earlier one, or is not in order"},
		"memory without data":    {whole, edit(load+32, 0, 0, 0), "program header 1: 0 of 1048576 bytes of memory are in the file"},
		"data far away":          {whole, edit(load+8+5, 1), "longer than the machine's memory explains"},
		"more than the overhead": {[][2]uint64{{0, mib}, {2 * mib, 65 * mib}}, nil, "longer than the machine's memory explains"},
		"more at the end":        {whole, func(b []byte) []byte { return append(b, make([]byte, 65*mib)...) }, "longer than the machine's memory explains"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			core := coreHead(elf.EM_X86_64, c.segments...)
			for _, s := range c.segments {
				core = append(core, make([]byte, s[1])...)
			}
			if c.change != nil {
				core = c.change(core)
			}
			err := vmm.ReadCore(bytes.NewReader(core), mib, func(int64, []byte) error { return nil })
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "core file: ") {
				t.Errorf("error %v; %q is expected", err, c.want)
			}
		})
	}
	if err := vmm.ReadCore(strings.NewReader(""), 4097, nil); err == nil || !strings.Contains(err.Error(), "cannot have 4097 bytes of RAM") {
		t.Error(err)
	}
	endless := io.MultiReader(bytes.NewReader(coreHead(elf.EM_X86_64, whole...)), zeros{})
	if err := vmm.ReadCore(endless, mib, func(int64, []byte) error { return nil }); err == nil || !strings.Contains(err.Error(), "longer than") {
		t.Errorf("an endless file: %v", err)
	}
	stop := errors.New("stop")
	core := append(coreHead(elf.EM_X86_64, whole...), make([]byte, mib)...)
	if err := vmm.ReadCore(bytes.NewReader(core), mib, func(int64, []byte) error { return stop }); err != stop {
		t.Errorf("error %v in place of the callback's", err)
	}
}

// FuzzReadCore: whatever a hostile machine monitor writes, pages are in the RAM and in ascending order, and without an error there are all of them.
func FuzzReadCore(f *testing.F) {
	const size = 4 * vmm.PageSize
	f.Add(append(coreHead(elf.EM_X86_64, [2]uint64{0, size}), make([]byte, size)...), uint16(0))
	f.Add(append(coreHead(elf.EM_X86_64, [2]uint64{0, 4096}, [2]uint64{4 << 30, size - 4096}), make([]byte, size)...), uint16(10))
	f.Add(append(coreHead(elf.EM_AARCH64, [2]uint64{0, 4096}, [2]uint64{1 << 30, size}), make([]byte, size+4096)...), uint16(1<<15))
	f.Fuzz(func(t *testing.T, core []byte, more uint16) {
		r := io.MultiReader(bytes.NewReader(core), io.LimitReader(zeros{}, int64(more)))
		next := int64(0)
		err := vmm.ReadCore(r, size, func(offset int64, b []byte) error {
			if offset != next || len(b) != vmm.PageSize {
				t.Fatalf("%d bytes at offset %d; offset %d is expected", len(b), offset, next)
			}
			next += vmm.PageSize
			return nil
		})
		if next > size || err == nil && next != size {
			t.Errorf("%d of %d bytes: %v", next, size, err)
		}
	})
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }
