package gvisor

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// frame6 returns a frame with an IPv6 packet of the given next header.
func frame6(next byte, payload ...byte) []byte {
	f := make([]byte, vnetHeader+etherHeader+ip6Header, 200)
	binary.BigEndian.PutUint16(f[vnetHeader+12:], etherIPv6)
	ip := f[vnetHeader+etherHeader:]
	ip[0], ip[6], ip[7] = 0x60, next, 64
	binary.BigEndian.PutUint16(ip[4:], uint16(len(payload)))
	for i := range 32 {
		ip[8+i] = byte(0x11 * i)
	}
	return append(f, payload...)
}

// checksum returns the checksum of the ICMPv6 message in a frame, as RFC 4443 defines it, with the checksum's field as zero.
func checksum(frame []byte) uint16 {
	ip := frame[vnetHeader+etherHeader:]
	message := bytes.Clone(ip[ip6Header:])
	message[2], message[3] = 0, 0
	pseudo := append(bytes.Clone(ip[8:40]), 0, 0, 0, byte(len(message)), 0, 0, 0, protoICMPv6)
	sum := uint32(0)
	for all := append(pseudo, message...); len(all) > 0; all = all[2:] {
		sum += uint32(binary.BigEndian.Uint16(all))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

func TestExplain(t *testing.T) {
	for seed := range 1 << 16 { // each checksum that there is
		f := frame6(protoICMPv6, icmp6Unreachable, icmp6Prohibited, 0, 0, 0, 0, byte(seed>>8), byte(seed))
		binary.BigEndian.PutUint16(f[vnetHeader+etherHeader+ip6Header+2:], checksum(f))
		explain(f)
		b := icmp6(f)
		if sum := binary.BigEndian.Uint16(b[2:]); b[1] != icmp6NoRoute || sum != checksum(f) && sum^checksum(f) != 0xffff {
			t.Fatalf("%x: code %d, checksum %#x, want %#x", seed, b[1], sum, checksum(f))
		}
	}
	for _, other := range [][]byte{frame6(protoICMPv6, 1, 4, 1, 2, 0, 0, 0, 0), frame6(protoICMPv6, 3, 1, 1, 2, 0, 0, 0, 0), frame6(17, 1, 1, 1, 2, 0, 0, 0, 0)} {
		before := bytes.Clone(other)
		if explain(other); !bytes.Equal(before, other) {
			t.Errorf("%x was changed to %x", before, other)
		}
	}
}

// FuzzFrames: no frame makes the relay panic, and explain changes three bytes at most.
func FuzzFrames(f *testing.F) {
	f.Add(frame6(protoICMPv6, 1, 1, 0, 0, 0, 0, 0, 0))
	f.Add(frame6(protoHopByHop, protoICMPv6, 0, 5, 2, 0, 0, 1, 0, 143, 0, 0, 0, 0, 0, 0, 0))
	f.Fuzz(func(t *testing.T, frame []byte) {
		before := bytes.Clone(frame)
		explain(frame)
		changed := 0
		for i := range frame {
			if frame[i] != before[i] {
				changed++
			}
		}
		if changed > 3 {
			t.Errorf("%d bytes were changed", changed)
		}
	})
}
