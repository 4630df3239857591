package ship

import (
	"bytes"
	"errors"
	"reflect"
	"testing"

	"github.com/custody-project/custody/audit/store"
	"github.com/custody-project/custody/audit/store/storetest"
)

func encoded(t testing.TB, seg store.Segment) []byte {
	t.Helper()
	b, err := Encode(seg)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestCodec(t *testing.T) {
	for _, seg := range storetest.Run("r-1", 500, 100) {
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
	whole := encoded(t, storetest.Run("r-1", 6, 6)[0])
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
	for _, seg := range storetest.Run("r-1", 8, 3) {
		f.Add(encoded(f, seg))
	}
	f.Add([]byte(magic))
	f.Add([]byte(magic + "\x01r\x80\x00"))
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
