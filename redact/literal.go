package redact

import (
	"encoding/ascii85"
	"encoding/binary"
	"fmt"
	"math/big"
	"slices"
	"strconv"
)

// literal writes the whole value in a way that is promised for the value alone: it
// is not decoded, but compared, in any case and with filler between the symbols. It
// leaves out a value that it cannot write.
type literal struct {
	write func(dst, p []byte) []byte
	rows  bool // also in a dump, after addresses
}

var literals = []literal{
	{write: numbers(10, 1, "")},
	{write: numbers(10, 1, ",")},
	{write: numbers(8, 3, ""), rows: true},
	{write: numbers(2, 8, "")},
	{write: wordPairs("%04x"), rows: true},
	{write: wordPairs("%06o"), rows: true},
	{write: reversed},
	{write: rot13},
	{write: utf32(binary.LittleEndian)},
	{write: utf32(binary.BigEndian)},
	{write: runes(percentU)},
	{write: runes(func(dst []byte, r rune) []byte { return fmt.Appendf(dst, `\u{%x}`, r) })},
	{write: base58},
	{write: base85(ascii85digits)},
	{write: base85("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~")}, // RFC 1924
	{write: base85("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#")}, // Z85
	{write: uuencode('`')},
	{write: uuencode(' ')},
}

// numbers writes bytes as numbers of at least width digits.
func numbers(base, width int, between string) func(dst, p []byte) []byte {
	return func(dst, p []byte) []byte {
		for i, b := range p {
			if i > 0 {
				dst = append(dst, between...)
			}
			s := strconv.FormatUint(uint64(b), base)
			for range width - len(s) {
				dst = append(dst, '0')
			}
			dst = append(dst, s...)
		}
		return dst
	}
}

func reversed(dst, p []byte) []byte {
	r := []rune(string(p))
	slices.Reverse(r)
	return append(dst, string(r)...)
}

func rot13(dst, p []byte) []byte {
	for _, b := range p {
		if l := lower(b); 'a' <= l && l <= 'z' {
			b += (l-'a'+13)%26 - (l - 'a')
		}
		dst = append(dst, b)
	}
	return dst
}

// wordPairs writes pairs of bytes as hexdump and od do on a little-endian machine.
func wordPairs(format string) func(dst, p []byte) []byte {
	return func(dst, p []byte) []byte {
		for pair := range slices.Chunk(p, 2) {
			dst = fmt.Appendf(dst, format, binary.LittleEndian.Uint16(append(slices.Clone(pair), 0)))
		}
		return dst
	}
}

func utf32(order binary.AppendByteOrder) func(dst, p []byte) []byte {
	return func(dst, p []byte) []byte {
		for _, r := range string(p) {
			dst = order.AppendUint32(dst, uint32(r))
		}
		return dst
	}
}

// maxBase58 bounds the work for a form whose cost grows with the square of the length.
const maxBase58 = 256

func base58(dst, p []byte) []byte {
	const digits = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
	if len(p) > maxBase58 {
		return dst
	}
	n, mod, base := new(big.Int).SetBytes(p), new(big.Int), big.NewInt(58)
	var out []byte
	for n.Sign() > 0 {
		n.DivMod(n, base, mod)
		out = append(out, digits[mod.Int64()])
	}
	for _, b := range p {
		if b != 0 {
			break
		}
		out = append(out, digits[0])
	}
	slices.Reverse(out)
	return append(dst, out...)
}

const ascii85digits = ""

// base85 writes groups of four bytes as five digits; without digits it is ASCII85.
func base85(digits string) func(dst, p []byte) []byte {
	return func(dst, p []byte) []byte {
		if digits == ascii85digits {
			out := make([]byte, ascii85.MaxEncodedLen(len(p)))
			return append(dst, out[:ascii85.Encode(out, p)]...)
		}
		for group := range slices.Chunk(p, 4) {
			n := binary.BigEndian.Uint32(append(slices.Clone(group), 0, 0, 0)[:4])
			var out [5]byte
			for i := range out {
				out[4-i] = digits[n%85]
				n /= 85
			}
			dst = append(dst, out[:len(group)+1]...)
		}
		return dst
	}
}

// uuencode writes lines of 45 bytes, each after its length.
func uuencode(zero byte) func(dst, p []byte) []byte {
	char := func(b byte) byte {
		if b == 0 {
			return zero
		}
		return b + ' '
	}
	return func(dst, p []byte) []byte {
		for line := range slices.Chunk(p, 45) {
			dst = append(dst, char(byte(len(line))))
			for group := range slices.Chunk(line, 3) {
				group = append(slices.Clone(group), 0, 0)[:3]
				for at := 0; at < 24; at += 6 {
					dst = append(dst, char(bitsAt(group, at, 6)))
				}
			}
		}
		return dst
	}
}
