package redact

import (
	"bytes"
	"slices"
	"testing"
)

// TestWatch compares with Find and Stream: at every split the value is found before all of it is passed on.
func TestWatch(t *testing.T) {
	value := []byte("s3cr3t/Value+with-28-bytes==")
	r := New([]byte("key"))
	if err := r.Add("a", value); err != nil {
		t.Fatal(err)
	}
	for form, p := range spelled(string(value)) {
		text := slices.Concat([]byte("before, "), []byte(p), []byte(" and after it"))
		if !slices.Equal(r.Find(text), []string{"a"}) {
			t.Fatalf("%s: %q is not found", form, text)
		}
		for at := range text {
			w := r.Watch()
			one, held := w.Write(text[:at])
			left := at - held
			two, _ := w.Write(text[at:])
			found := slices.Concat(one, two, w.End())
			if len(found) == 0 || !slices.ContainsFunc(found, func(b []byte) bool { return slices.Equal(r.Find(b), []string{"a"}) }) {
				t.Fatalf("%q split at %d: %q", text, at, found)
			}
			if len(one) == 0 && len(r.Find(text[:left])) > 0 {
				t.Fatalf("%q split at %d: all of it was passed on before it was found", text, at)
			}
		}
	}
}

// TestWatchBytewise passes one byte at a time, with a value that is added meanwhile.
func TestWatchBytewise(t *testing.T) {
	value := []byte("another-secret-value")
	r := New([]byte("key"))
	w := r.Watch()
	text := append(bytes.Repeat([]byte("x"), 100), value...)
	var found [][]byte
	for i := range text {
		if i == 10 {
			if err := r.Add("late", value); err != nil {
				t.Fatal(err)
			}
		}
		f, held := w.Write(text[i : i+1])
		if found = append(found, f...); len(found) == 0 && i >= 100 && held < i+1-100 {
			t.Fatalf("byte %d: only %d are held back", i, held)
		}
	}
	if found = append(found, w.End()...); len(found) == 0 || !bytes.Equal(found[0], value) {
		t.Errorf("%q", found)
	}
	if f, held := New(nil).Watch().Write(value); f != nil || held != 0 {
		t.Errorf("without values: %q %d", f, held)
	}
}
