package gateway

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"
)

// theirHello returns the hello that crypto/tls parses from the same bytes. ok is false if it rejects them.
func theirHello(raw []byte) (name string, extensions []uint16, ok bool) {
	errRead := errors.New("read")
	t := tls.Server(&replay{r: bytes.NewReader(raw)}, &tls.Config{
		GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
			name, extensions, ok = h.ServerName, h.Extensions, true
			return nil, errRead
		},
	})
	_ = t.Handshake()
	return name, extensions, ok
}

// replay is a connection whose data is fixed.
type replay struct {
	net.Conn
	r io.Reader
}

func (r *replay) Read(p []byte) (int, error)       { return r.r.Read(p) }
func (r *replay) Write(p []byte) (int, error)      { return len(p), nil }
func (r *replay) Close() error                     { return nil }
func (r *replay) SetDeadline(time.Time) error      { return nil }
func (r *replay) SetWriteDeadline(time.Time) error { return nil }
func (r *replay) SetReadDeadline(time.Time) error  { return nil }

// FuzzClientHello: crypto/tls parses accepted hellos in the same way, and the parser reads nothing beyond them.
func FuzzClientHello(f *testing.F) {
	raw := rawHello(f, &tls.Config{ServerName: "a.example", NextProtos: []string{"h2"}})
	old := rawHello(f, &tls.Config{ServerName: "a.example", MaxVersion: tls.VersionTLS12})
	f.Add(raw)
	f.Add(old)
	f.Add(records(raw[recordHeader:], 7))
	f.Add(rawHello(f, &tls.Config{InsecureSkipVerify: true}))
	f.Add(withExtension(old, extECH, []byte{0}))
	f.Add(withExtension(old, extServerName, lengthen(2, "\x00\x00\x09b.example")))
	f.Add(withExtension(rawHello(f, &tls.Config{InsecureSkipVerify: true}), extServerName, lengthen(2, "\x00\x00\x0ba.example.\x00\x00\x00\x01b")))
	f.Add(bytes.Replace(old, []byte("a.example"), []byte("a.ex\x00mple"), 1))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bytes.NewReader(b)
		h, raw, err := readHello(r, nil)
		if err != nil {
			return
		}
		if !bytes.Equal(raw, b[:len(b)-r.Len()]) {
			t.Fatalf("%d bytes read, %d returned", len(b)-r.Len(), len(raw))
		}
		name, extensions, ok := theirHello(b)
		if !ok {
			// crypto/tls checks extensions that the gateway ignores; hosts that do so too reject what the gateway passes
			// on. What matters is that both find the same name.
			return
		}
		if name != h.name {
			t.Fatalf("crypto/tls reads the name %q, we read %q", name, h.name)
		}
		if ech := slices.Contains(extensions, extECH) || slices.Contains(extensions, extESNI) || slices.Contains(extensions, extECHOuter); ech != h.ech {
			t.Fatalf("crypto/tls sees ECH %v, we %v", ech, h.ech)
		}
	})
}

// FuzzHelloRecords: the split of a hello into records does not change the result.
func FuzzHelloRecords(f *testing.F) {
	raw := rawHello(f, &tls.Config{ServerName: "a.example"})
	f.Add([]byte{1})
	f.Add([]byte{255, 3, 9})
	f.Fuzz(func(t *testing.T, cuts []byte) {
		var b []byte
		m := raw[recordHeader:]
		for i := 0; len(m) > 0; i++ {
			n := len(m)
			if len(cuts) > 0 {
				n = min(n, 1+int(cuts[i%len(cuts)]))
			}
			b = append(b, records(m[:n], n)...)
			m = m[n:]
		}
		h, got, err := readHello(bytes.NewReader(append(b, "more"...)), nil)
		if err != nil || h.name != "a.example" || !bytes.Equal(got, b) {
			t.Fatalf("%+v %v", h, err)
		}
		if name, _, ok := theirHello(b); !ok || name != "a.example" {
			t.Fatalf("crypto/tls: %q %v", name, ok)
		}
	})
}

func TestHelloBounds(t *testing.T) {
	raw := rawHello(t, &tls.Config{ServerName: "a.example"})
	huge := withExtension(raw, 0x7a7a, make([]byte, maxHello))
	if _, _, err := readHello(bytes.NewReader(huge), nil); err == nil || !strings.Contains(err.Error(), "at most") {
		t.Errorf("%v", err)
	}
	small := records(withMessage(withExtension(raw, 0x7a7a, make([]byte, maxHello-4000))), 1)
	if _, got, err := readHello(bytes.NewReader(small), nil); err == nil || len(got) > maxHelloRaw+2*recordHeader {
		t.Errorf("%d bytes kept, %v", len(got), err)
	}
	for n := range raw { // truncated anywhere
		if _, _, err := readHello(bytes.NewReader(raw[:n]), nil); !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("%d bytes: %v", n, err)
		}
	}
}

// withMessage returns the message in a hello's records.
func withMessage(raw []byte) []byte {
	var m []byte
	for len(raw) > 0 {
		n := int(raw[3])<<8 | int(raw[4])
		m = append(m, raw[recordHeader:recordHeader+n]...)
		raw = raw[recordHeader+n:]
	}
	return m
}

func BenchmarkClientHello(b *testing.B) {
	raw := rawHello(b, &tls.Config{ServerName: "a.example", NextProtos: []string{"h2", "http/1.1"}})
	b.Run("ours", func(b *testing.B) {
		for b.Loop() {
			if _, _, err := readHello(bytes.NewReader(raw), nil); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("crypto-tls", func(b *testing.B) {
		for b.Loop() {
			if _, _, ok := theirHello(raw); !ok {
				b.Fatal("not read")
			}
		}
	})
}
