package firecracker

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"strings"
	"testing"
)

// bzImage returns a kernel image with this payload.
func bzImage(payload []byte, unpacked int) []byte {
	image := make([]byte, 2*512)
	image[offSectors] = 1
	copy(image[offMagic:], "HdrS")
	binary.LittleEndian.PutUint16(image[offMagic+4:], 0x20f)
	binary.LittleEndian.PutUint32(image[offPayload+4:], uint32(len(payload)+4))
	return binary.LittleEndian.AppendUint32(append(image, payload...), uint32(unpacked))
}

// lz4Frame packs data as literals, followed by a match of 300 bytes at distance 1.
func lz4Frame(data []byte) []byte {
	block := []byte{0xff, byte(len(data) - 15)}
	block = append(append(block, data...), 1, 0, 255, 300-4-15-255)
	block = append(block, 0x10, 'E') // the last literal
	frame := binary.LittleEndian.AppendUint32([]byte{0x02, 0x21, 0x4c, 0x18}, uint32(len(block)))
	return append(frame, block...)
}

func TestUnpackKernel(t *testing.T) {
	content := []byte("\x7fELF and what follows it.")
	repeated := append(append(bytes.Clone(content), strings.Repeat(".", 300)...), 'E')
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	z.Write(content)
	ok(t, z.Close())
	for name, c := range map[string]struct {
		image, want []byte
		err         string
	}{
		"LZ4":          {bzImage(lz4Frame(content), len(repeated)), repeated, ""},
		"gzip":         {bzImage(zipped.Bytes(), len(content)), content, ""},
		"ELF":          {content, content, ""},
		"no kernel":    {[]byte("text"), nil, "not a bzImage"},
		"XZ":           {bzImage([]byte("\xfd7zXZ\x00"), 10), nil, "use Firecracker 1.17 or later"},
		"cut off":      {bzImage(lz4Frame(content), 1000)[:1040], nil, "is cut off"},
		"too large":    {bzImage(lz4Frame(content), maxKernel+1), nil, "at most"},
		"broken block": {bzImage([]byte{0x02, 0x21, 0x4c, 0x18, 4, 0, 0, 0, 0x01, 'a', 9, 0}, 100), nil, "broken LZ4 data"},
		"another file": {bzImage(lz4Frame(bytes.Repeat([]byte("x"), 20)), 321), nil, "does not contain an ELF file"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := unpackKernel(c.image)
			if c.err == "" && (err != nil || !bytes.Equal(got, c.want)) || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
				t.Errorf("%q, %v, want %q, %q", got, err, c.want, c.err)
			}
		})
	}
}

func FuzzUnpackKernel(f *testing.F) {
	f.Add(bzImage(lz4Frame([]byte("\x7fELF and what follows it.")), 325))
	f.Fuzz(func(t *testing.T, image []byte) {
		if len(image) > offPayload+8 && len(image) < 1<<16 {
			copy(image[len(image)-2:], []byte{0, 0}) // an unpacked size of at most 64 KiB
		}
		elf, err := unpackKernel(image)
		if err == nil && !bytes.HasPrefix(elf, []byte("\x7fELF")) {
			t.Errorf("%q", elf)
		}
	})
}

func TestFindMemory(t *testing.T) {
	const maps = `7f0000000000-7f0000200000 rw-p 00000000 00:00 0
7f1000000000-7f1020000000 rw-p 00000000 fe:00 131076                     /memory
7f2000000000-7f2020000000 r--p 00000000 00:00 0
7f3000000000-7f30c0000000 rw-p 00000000 00:00 0
7f4000000000-7f4040000000 rw-p c0000000 00:00 0
garbage
`
	for _, c := range []struct {
		size int64
		want []region
	}{
		{512 << 20, []region{{0x7f1000000000, 512 << 20, 0}}},
		{3 << 30, []region{{0x7f3000000000, 3 << 30, 0}}},
		{4 << 30, []region{{0x7f3000000000, 3 << 30, 0}, {0x7f4000000000, 1 << 30, above4G}}},
		{256 << 20, nil},
		{8 << 30, nil},
	} {
		got, err := findMemory([]byte(maps), c.size)
		if (err == nil) != (c.want != nil) || len(got) != len(c.want) {
			t.Errorf("%d MiB: %v, %v", c.size>>20, got, err)
			continue
		}
		for i := range got {
			if got[i] != c.want[i] {
				t.Errorf("%d MiB: %v, want %v", c.size>>20, got, c.want)
			}
		}
	}
}

func FuzzFindMemory(f *testing.F) {
	f.Add([]byte("7f1000000000-7f1020000000 rw-p 00000000 fe:00 131076   /memory\n"), int64(512<<20))
	f.Fuzz(func(t *testing.T, maps []byte, size int64) {
		regions, err := findMemory(maps, size)
		if err != nil {
			return
		}
		var sum int64
		for _, r := range regions {
			sum += r.size
		}
		if sum != size {
			t.Errorf("%d bytes of %d", sum, size)
		}
	})
}
