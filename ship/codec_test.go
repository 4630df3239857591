package ship

import (
	"bytes"
	"errors"
	"reflect"
	"testing"

	"github.com/custody-project/custody/store"
	"github.com/custody-project/custody/store/storetest"
)

func encoded(t testing.TB, seg store.Segment) []byte {
	t.Helper()
	b, err := Encode(seg)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// variety is segments with every part that a segment can have.
func variety() []store.Segment {
	segs := storetest.Run("r-1", 500, 100)
	segs = append(segs, storetest.Run("r-2", 8, 3)...)
	for i := range segs[5:] {
		seg := &segs[5+i]
		seg.Tenant, seg.Host = "acme.eu", "host_1"
		for j := range seg.Frames {
			if leaf := seg.Frames[j].Leaf(); j%2 == 0 {
				seg.Frames[j] = store.Frame{Seq: seg.Frames[j].Seq, Erased: &leaf}
			}
		}
	}
	return segs
}

func TestCodec(t *testing.T) {
	for _, seg := range variety() {
		got, err := Decode(encoded(t, seg))
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, seg) {
			t.Errorf("segment %d came back changed", seg.Index)
		}
	}
}

// TestCutMessages decodes every prefix of a message and every message with one byte too many.
func TestCutMessages(t *testing.T) {
	for _, seg := range variety()[5:8] {
		cut(t, encoded(t, seg))
	}
}

func cut(t *testing.T, whole []byte) {
	t.Helper()
	for n := range whole {
		if _, err := Decode(whole[:n]); !errors.Is(err, store.ErrMalformed) {
			t.Fatalf("the first %d of %d bytes: %v", n, len(whole), err)
		}
	}
	if _, err := Decode(append(bytes.Clone(whole), 0)); !errors.Is(err, store.ErrMalformed) {
		t.Errorf("a byte too many: %v", err)
	}
}

func TestTooLarge(t *testing.T) {
	seg := store.Segment{Run: "r-1", First: 1, Last: 3}
	for i := range 3 {
		seg.Frames = append(seg.Frames, store.Frame{Seq: uint64(i + 1), Body: make([]byte, store.MaxBody)})
	}
	if _, err := Encode(seg); !errors.Is(err, ErrTooLarge) {
		t.Errorf("got %v", err)
	}
}

// FuzzDecode: what decodes has exactly one encoding.
func FuzzDecode(f *testing.F) {
	for _, seg := range variety()[5:] {
		f.Add(encoded(f, seg))
	}
	f.Add([]byte(magic))
	f.Add([]byte(magic + "\x00\x00\x01r\x80\x00"))
	f.Add([]byte("CSG1\x01r"))
	f.Fuzz(func(t *testing.T, message []byte) {
		seg, err := Decode(message)
		if err != nil {
			if !errors.Is(err, store.ErrMalformed) {
				t.Fatalf("not a typed error: %v", err)
			}
			return
		}
		if again := encoded(t, seg); !bytes.Equal(again, message) {
			t.Fatalf("decoded %x, encoded again %x", message, again)
		}
	})
}
