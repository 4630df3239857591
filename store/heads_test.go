package store_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/store"
	"github.com/custody-project/custody/store/storetest"
)

// TestErasedTimes: an erased frame gets its time from the nearest frame that has one.
func TestErasedTimes(t *testing.T) {
	const sealed = 99 * time.Second
	for name, want := range map[string][]time.Duration{ // "x" is erased, a digit is a record of that second
		"123": {1, 2, 3}, "x23": {2, 2, 3}, "xx3": {3, 3, 3}, "1x3": {1, 1, 3}, "1xx": {1, 1, 1}, "x2x": {2, 2, 2},
		"xxx": {sealed / time.Second, sealed / time.Second, sealed / time.Second},
	} {
		seg := store.Segment{Run: "r-1", First: 1, Last: 3, Manifest: fmt.Appendf(nil, "type\n{\"sealed_at\":%q}\n\nsignature {\n",
			storetest.Start().Add(sealed).Format(time.RFC3339Nano))}
		for i, c := range name {
			f := store.Frame{Seq: uint64(i + 1), Erased: &[32]byte{}}
			if c != 'x' {
				e := storetest.Events(4)[0]
				e.Time = storetest.Start().Add(time.Duration(c-'0') * time.Second)
				f = storetest.Frame("r-1", f.Seq, e)
			}
			seg.Frames = append(seg.Frames, f)
		}
		heads, err := seg.Heads()
		if err != nil {
			t.Fatal(err)
		}
		for i, h := range heads {
			if got := h.Time.Sub(storetest.Start()); got != want[i]*time.Second || h.Run != "r-1" || h.Seq != uint64(i+1) {
				t.Errorf("%s: head %d is %+v, want %ds", name, i, h, want[i])
			}
		}
	}
}

func TestErasedWithoutTime(t *testing.T) {
	for _, manifest := range []string{"", "type", "type\n", "type\n{}", "type\n{\"sealed_at\":\"2300-01-01T00:00:00Z\"}\n", "type\n{\"sealed_at\":5}\n", "\n\n\n"} {
		seg := store.Segment{Run: "r-1", First: 1, Last: 1, Manifest: []byte(manifest), Frames: []store.Frame{{Seq: 1, Erased: &[32]byte{}}}}
		if _, err := seg.Heads(); !errors.Is(err, store.ErrMalformed) {
			t.Errorf("%q: got %v, want ErrMalformed", manifest, err)
		}
	}
}

// TestManifestsTime: the time is where package proof writes it.
func TestManifestsTime(t *testing.T) {
	line, err := json.Marshal(statement.Manifest{Run: "r-1", SealedAt: storetest.Start()})
	if err != nil {
		t.Fatal(err)
	}
	seg := store.Segment{Run: "r-1", Manifest: fmt.Appendf(nil, "custody manifest v1\n%s\n\n", line), Frames: []store.Frame{{Erased: &[32]byte{}}}}
	heads, err := seg.Heads()
	if err != nil || !heads[0].Time.Equal(storetest.Start()) {
		t.Errorf("got %v, %v", heads, err)
	}
}
