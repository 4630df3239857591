package worker

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/custody-project/custody/vmm"
)

// memory returns n pages, of which every third has data.
func memory(n int) []byte {
	b := make([]byte, n*vmm.PageSize)
	for i := 0; i < n; i += 3 {
		b[i*vmm.PageSize+i%vmm.PageSize] = byte(i%255) + 1
	}
	return b
}

// sent returns what a worker sends of a memory.
func sent(t *testing.T, memory []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := newPageWriter(&out)
	for at := 0; at < len(memory); at += vmm.PageSize {
		if err := w.page(int64(at), memory[at:at+vmm.PageSize]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.to.Flush(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// receive returns the memory that ReadPages returns.
func receive(sent []byte, size int) ([]byte, error) {
	got := make([]byte, 0, size)
	err := ReadPages(bytes.NewReader(sent), int64(size), func(at int64, b []byte) error {
		if at != int64(len(got)) {
			return errors.New("not consecutive")
		}
		got = append(got, b...)
		return nil
	})
	return got, err
}

// TestPages: what a worker sends of a memory is received whole, or not at all.
func TestPages(t *testing.T) {
	for _, n := range []int{1, 2, 255, 256, 257, 1000} {
		want := memory(n)
		got, err := receive(sent(t, want), len(want))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d pages: %v", n, err)
		}
	}
	whole := memory(7)
	good := sent(t, whole)
	for name, bad := range map[string][]byte{
		"none":         nil,
		"cut off":      good[:len(good)-1],
		"one less":     sent(t, whole[:6*vmm.PageSize]),
		"one more":     sent(t, memory(8)),
		"one repeated": append(bytes.Clone(good[:8+vmm.PageSize]), good...),
		"first absent": good[8+vmm.PageSize:],
	} {
		if _, err := receive(bad, len(whole)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	full := errors.New("full")
	if err := ReadPages(bytes.NewReader(good), int64(len(whole)), func(int64, []byte) error { return full }); !errors.Is(err, full) {
		t.Errorf("the receiver's error: %v", err)
	}
}

func FuzzReadPages(f *testing.F) {
	f.Add([]byte{1, 0, 0, 0, 0, 0, 0, 0, 1, 16, 0, 0, 0, 0, 0, 0}, uint8(2))
	f.Fuzz(func(t *testing.T, sent []byte, pages uint8) {
		size := int64(pages) * vmm.PageSize
		got, err := receive(sent, int(size))
		if int64(len(got)) > size {
			t.Fatalf("%d bytes of %d", len(got), size)
		}
		if err != nil {
			return
		}
		if int64(len(got)) != size {
			t.Fatalf("%d bytes of %d without an error", len(got), size)
		}
		if again, err := io.ReadAll(bytes.NewReader(sent)); err != nil || int64(len(again)) > size+8*int64(pages) {
			t.Fatal("more was sent than the memory has")
		}
	})
}
