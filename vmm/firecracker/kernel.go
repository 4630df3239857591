package firecracker

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"

	"github.com/custody-project/custody/internal/regular"
	"github.com/custody-project/custody/vmm"
)

// maxKernel bounds the size of an unpacked kernel.
const maxKernel = 160 << 20

// errNoVsock means that a template cannot connect to the host over Firecracker's vsock device.
var errNoVsock = errors.New("the template was made before Custody supported Firecracker: its initramfs has no vsock modules; make it again with custody template build")

// bootFiles reads the kernel and the initramfs of a cold boot. With unpack, the kernel is returned as the ELF file that
// the image contains: Firecracker before 1.17 boots no other.
func bootFiles(img vmm.Image, unpack bool) (kernel, initrd []byte, err error) {
	if kernel, err = regular.ReadFile(img.Kernel); err != nil {
		return nil, nil, err
	}
	if initrd, err = regular.ReadFile(img.Initrd); err != nil {
		return nil, nil, err
	}
	if !bytes.Contains(initrd, []byte("modules/vmw_vsock_virtio_transport.ko")) {
		return nil, nil, errNoVsock
	}
	if unpack {
		kernel, err = unpackKernel(kernel)
	}
	return kernel, initrd, err
}

// Offsets in a bzImage: https://docs.kernel.org/arch/x86/boot.html.
const (
	offSectors = 0x1f1 // number of 512-byte sectors of the setup code, after the first
	offMagic   = 0x202 // "HdrS", and then the version of the boot protocol
	offPayload = 0x248 // where the compressed kernel begins, after the setup code; then its length
	setupEnd   = 0x250
	oldestBoot = 0x208 // the first boot protocol with offPayload
)

// unpackKernel returns the ELF file in a bzImage. An ELF file is returned as it is.
func unpackKernel(image []byte) ([]byte, error) {
	if bytes.HasPrefix(image, []byte("\x7fELF")) {
		return image, nil
	}
	if len(image) < setupEnd || string(image[offMagic:offMagic+4]) != "HdrS" || binary.LittleEndian.Uint16(image[offMagic+4:]) < oldestBoot {
		return nil, errors.New("the template's kernel is not a bzImage")
	}
	sectors := int(image[offSectors])
	if sectors == 0 {
		sectors = 4
	}
	begin := (sectors+1)*512 + int(binary.LittleEndian.Uint32(image[offPayload:]))
	length := int(binary.LittleEndian.Uint32(image[offPayload+4:]))
	if length < 8 || begin > len(image) || length > len(image)-begin {
		return nil, errors.New("the template's kernel is cut off")
	}
	payload := image[begin : begin+length-4] // the last four bytes are the unpacked size
	size := int64(binary.LittleEndian.Uint32(image[begin+length-4:]))
	if size > maxKernel {
		return nil, fmt.Errorf("the template's kernel is %d bytes long, at most %d are supported", size, maxKernel)
	}
	elf, err := decompress(payload, size)
	if err != nil {
		return nil, fmt.Errorf("unpack the template's kernel: %w", err)
	}
	if !bytes.HasPrefix(elf, []byte("\x7fELF")) {
		return nil, errors.New("the template's kernel does not contain an ELF file")
	}
	return elf, nil
}

// decompress returns the content, of at most size bytes, of data that was compressed with LZ4, gzip or Zstandard.
func decompress(data []byte, size int64) ([]byte, error) {
	var r io.Reader
	switch {
	case bytes.HasPrefix(data, []byte{0x02, 0x21, 0x4c, 0x18}):
		return unpackLZ4(data[4:], size)
	case bytes.HasPrefix(data, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(bytes.NewReader(data))
		if err != nil {
			return nil, err
		}
		r = z
	case bytes.HasPrefix(data, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, err := zstd.NewReader(bytes.NewReader(data), zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxKernel))
		if err != nil {
			return nil, err
		}
		defer z.Close()
		r = z
	default:
		return nil, fmt.Errorf("its compression (%x) is not supported: use Firecracker 1.17 or later", data[:4])
	}
	return io.ReadAll(io.LimitReader(r, size))
}

// lz4Block is the unpacked size of a block.
const lz4Block = 8 << 20

var errLZ4 = errors.New("broken LZ4 data")

// unpackLZ4 unpacks blocks of LZ4 in the legacy frame format, each after its length:
// https://github.com/lz4/lz4/blob/dev/doc/lz4_Frame_format.md.
func unpackLZ4(data []byte, size int64) ([]byte, error) {
	out := make([]byte, 0, size)
	for len(data) >= 4 && int64(len(out)) < size {
		n := int64(binary.LittleEndian.Uint32(data))
		data = data[4:]
		if n > int64(len(data)) {
			return nil, errLZ4
		}
		var err error
		if out, err = unpackBlock(out, data[:n], min(int64(len(out))+lz4Block, size)); err != nil {
			return nil, err
		}
		data = data[n:]
	}
	return out, nil
}

// unpackBlock appends the content of a block to out, which may become limit bytes long:
// https://github.com/lz4/lz4/blob/dev/doc/lz4_Block_format.md.
func unpackBlock(out, in []byte, limit int64) ([]byte, error) {
	begin := len(out)
	for len(in) > 0 {
		token := in[0]
		literals, rest, err := lz4Length(int(token>>4), in[1:])
		if err != nil || literals > len(rest) || int64(len(out)+literals) > limit {
			return nil, errLZ4
		}
		out, in = append(out, rest[:literals]...), rest[literals:]
		if len(in) == 0 {
			break // the last sequence has no match
		}
		if len(in) < 2 {
			return nil, errLZ4
		}
		back := int(binary.LittleEndian.Uint16(in))
		match, rest, err := lz4Length(int(token&15), in[2:])
		match += 4
		if err != nil || back == 0 || back > len(out)-begin || int64(len(out)+match) > limit {
			return nil, errLZ4
		}
		for from := len(out) - back; match > 0; match-- { // byte by byte: the match may overlap its own copy
			out = append(out, out[from])
			from++
		}
		in = rest
	}
	return out, nil
}

// lz4Length decodes a length: 15 is followed by bytes that are added to it, up to the first that is not 255.
func lz4Length(n int, in []byte) (int, []byte, error) {
	if n < 15 {
		return n, in, nil
	}
	for i, b := range in {
		n += int(b)
		if b != 255 {
			return n, in[i+1:], nil
		}
	}
	return 0, nil, errLZ4
}
