package store_test

import (
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/custody-project/custody/store"
	"github.com/custody-project/custody/store/storetest"
)

// TestSummaryInAnyOrder: a run's summary does not depend on the order of its records.
func TestSummaryInAnyOrder(t *testing.T) {
	frames := storetest.Frames("r-1", storetest.Events(60))
	want := folded(t, frames)
	random := rand.New(rand.NewPCG(3, 4))
	for range 50 {
		random.Shuffle(len(frames), func(i, j int) { frames[i], frames[j] = frames[j], frames[i] })
		if got := folded(t, frames); !reflect.DeepEqual(got, want) {
			t.Fatalf("got %+v, want %+v", got, want)
		}
	}
}

func folded(t *testing.T, frames []store.Frame) store.Run {
	t.Helper()
	run := store.NewRun("r-1")
	for _, f := range frames {
		h, err := store.HeadOf("r-1", f)
		if err != nil {
			t.Fatal(err)
		}
		run.Add(h)
	}
	return run
}
