package replay

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/store/storetest"
)

// TestLanes: nothing that is in the window is lost from the picture, however wide it
// is; items of a row do not overlap; and no picture is larger than its columns allow.
func TestLanes(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	stories := []*Story{busyStory(t, 3000)}
	for range 5 {
		frames := randomRun(random, 300)
		s, err := Read(summary(frames), rowsOf(frames))
		if err != nil {
			t.Fatal(err)
		}
		stories = append(stories, s)
	}
	for i, s := range stories {
		whole := s.Lanes(time.Time{}, time.Time{}, maxColumns)
		for range 40 {
			from := storetest.Start().Add(time.Duration(random.IntN(4000)-200) * time.Millisecond)
			to := from.Add(time.Duration(1 + random.Int64N(5e9)))
			columns := 1 + random.IntN(200)
			checkLanes(t, fmt.Sprintf("story %d, %v, %v, %d columns", i, from, to, columns), s.Lanes(from, to, columns), columns)
		}
		for j, lane := range whole.Lanes {
			if lane.Name != laneNames()[j] || lane.Items == nil || lane.Buckets == nil {
				t.Errorf("lane %d: %+v", j, lane)
			}
		}
	}
}

func checkLanes(t *testing.T, name string, l Lanes, columns int) {
	t.Helper()
	for _, lane := range l.Lanes {
		total := uint64(len(lane.Items))
		for _, b := range lane.Buckets {
			total += b.Count
			if b.At < l.From-1 || b.At+b.Width > l.To+1 {
				t.Errorf("%s: lane %s: a bucket at %v lies outside of %v to %v", name, lane.Name, b.At, l.From, l.To)
			}
		}
		if total != lane.Total {
			t.Errorf("%s: lane %s has %d items, %d are shown", name, lane.Name, lane.Total, total)
		}
		if len(lane.Buckets) > columns || len(lane.Items) > max(columns, maxLong) {
			t.Errorf("%s: lane %s: %d buckets, %d items", name, lane.Name, len(lane.Buckets), len(lane.Items))
		}
		ends := map[int]float64{}
		for _, it := range lane.Items {
			end := it.At
			if it.End != 0 {
				end = it.End
			}
			if last, used := ends[it.Row]; used && it.At < last-1e-3 {
				t.Errorf("%s: lane %s: seq %d begins at %v in row %d, which is taken until %v", name, lane.Name, it.Seq, it.At, it.Row, last)
			}
			ends[it.Row] = end
			if it.At > l.To || end < l.From {
				t.Errorf("%s: lane %s: seq %d is not in the window", name, lane.Name, it.Seq)
			}
		}
	}
}

func TestLaneItems(t *testing.T) {
	r, seqs := agent()
	s := r.story(t)
	l := s.Lanes(time.Time{}, time.Time{}, 1000)
	find := func(lane int, name string) Item {
		t.Helper()
		i := slices.IndexFunc(l.Lanes[lane].Items, func(it Item) bool { return it.Seq == seqs[name] })
		if i < 0 {
			t.Fatalf("lane %s has no %s: %s", laneNames()[lane], name, toJSON(t, l.Lanes[lane]))
		}
		return l.Lanes[lane].Items[i]
	}
	if key := find(laneSecrets, "mint"); key.Label != "key" || key.Until-key.At != 60000 || key.End != l.Lanes[laneSecrets].Items[0].End || key.Open {
		t.Errorf("the credential: %+v", key)
	}
	for _, tc := range []struct {
		lane       int
		name, mood string
	}{{laneExec, "curl", "fail"}, {laneFlows, "deny", "deny"}, {laneFlows, "open data", "ok"}, {laneLLM, "call", "ok"}, {laneSteps, "step", "ok"},
		{laneSteps, "policy", "plain"}, {laneDNS, "ask data", "ok"}, {laneFiles, "rename", "plain"}} {
		if it := find(tc.lane, tc.name); it.Mood != tc.mood {
			t.Errorf("%s: %s, want %s", tc.name, it.Mood, tc.mood)
		}
	}
	if it := find(laneExec, "curl"); it.Observer != audit.Guest || it.Label != "curl https://data.example" {
		t.Errorf("curl: %+v", it)
	}
	if l.Live || l.Total != uint64(len(r.events)) || l.From != 0 || l.To != l.End {
		t.Errorf("the whole: live %v, %d records, %v to %v of %v", l.Live, l.Total, l.From, l.To, l.End)
	}
}

func TestHoles(t *testing.T) {
	frames := story()
	s, err := Read(summary(frames), rowsOf(frames))
	if err != nil {
		t.Fatal(err)
	}
	l := s.Lanes(time.Time{}, time.Time{}, maxColumns)
	if len(l.Freezes) != 1 || l.Freezes[0].From != 150 || l.Freezes[0].To != 160 {
		t.Errorf("freezes: %+v", l.Freezes)
	}
	undeclared := 0
	for _, h := range l.Gaps {
		if h.Seq == 0 {
			undeclared++
		}
	}
	if undeclared == 0 || len(l.Gaps) < 3 {
		t.Errorf("gaps: %s", toJSON(t, l.Gaps))
	}
	if narrow := s.Lanes(time.Time{}, time.Time{}, 1); len(narrow.Gaps) != 1 || narrow.Gaps[0].Lost < 42 {
		t.Errorf("in one column: %s", toJSON(t, narrow.Gaps))
	}
}
