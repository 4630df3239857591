package pool

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// slow is decide, one sandbox at a time, straight from the rules.
func slow(s scene) plan {
	p := plan{lack: make([]Reason, len(s.items))}
	kept := make([][]spare, len(s.items))
	destroy := func(i int, sp spare, cause Cause) {
		p.destroy = append(p.destroy, doomed{sp, cause})
		kept[i] = slices.DeleteFunc(kept[i], func(k spare) bool { return k.member == sp.member })
	}
	for i, it := range s.items { // rule 1
		kept[i] = slices.Clone(it.idle)
		for _, sp := range it.idle {
			if !it.active {
				destroy(i, sp, Unwanted)
			} else if sp.old {
				destroy(i, sp, Old)
			}
		}
	}
	shares := slowShares(s.items)
	for { // rule 2
		i, sp := slowSurplus(s.items, shares, kept)
		if i < 0 {
			break
		}
		destroy(i, sp, Surplus)
	}
	for s.known { // rule 3
		left := s.available + s.freeing
		for _, d := range p.destroy {
			left += d.memory
		}
		i, sp := oldest(kept, func(int) bool { return true })
		if left >= s.reserve || i < 0 {
			break
		}
		destroy(i, sp, Pressure)
	}
	slowMakes(s, &p, shares, kept) // rule 4
	return p
}

// slowShares gives one place after the other to the key with the fewest, then with the greatest load.
func slowShares(items []item) []int {
	shares := make([]int, len(items))
	for {
		best := -1
		for i, it := range items {
			given := 0
			for j, other := range items {
				if other.project == it.project {
					given += shares[j]
				}
			}
			if !it.active || given >= it.bound || shares[i] >= stock(it.load, it.bound) {
				continue
			}
			if best < 0 || shares[i] < shares[best] || shares[i] == shares[best] && it.load > items[best].load {
				best = i
			}
		}
		if best < 0 {
			return shares
		}
		shares[best]++
	}
}

// slowSurplus returns the oldest idle sandbox above its key's share in a project that has no place for all of those; -1 if there is none.
func slowSurplus(items []item, shares []int, kept [][]spare) (int, spare) {
	above := func(i int) int { return len(kept[i]) - max(0, shares[i]-max(0, items[i].making-items[i].waiting)) }
	for _, it := range items {
		places, extra := it.bound, 0
		for j, other := range items {
			if other.project == it.project {
				places -= max(shares[j], other.making-other.waiting)
				extra += max(0, above(j))
			}
		}
		if extra > max(0, places) {
			return oldest(kept, func(i int) bool { return items[i].project == it.project && above(i) > 0 })
		}
	}
	return -1, spare{}
}

func oldest(kept [][]spare, of func(int) bool) (at int, best spare) {
	at = -1
	for i := range kept {
		for _, sp := range kept[i] {
			if of(i) && (at < 0 || sp.since.Before(best.since)) {
				at, best = i, sp
			}
		}
	}
	return at, best
}

func slowMakes(s scene, p *plan, shares []int, kept [][]spare) {
	made := make([]int, len(s.items))
	has := func(i int) int { return len(kept[i]) + s.items[i].making + made[i] - s.items[i].waiting }
	wanted := func(i int) bool {
		it := s.items[i]
		return has(i) < shares[i] && (!s.settling || has(i) < 0) && !it.paused && (!it.failed || it.making+made[i] == 0)
	}
	fits := func(i int) bool {
		room := s.available - s.committed - s.reserve - s.reserve/8
		for _, j := range p.make {
			room -= s.items[j].memory
		}
		return s.known && s.items[i].memory <= room
	}
	for len(p.make) < s.slots {
		best := -1
		for i, it := range s.items {
			if wanted(i) && fits(i) && (best < 0 || has(i) < has(best) || has(i) == has(best) && it.load > s.items[best].load) {
				best = i
			}
		}
		if best < 0 {
			break
		}
		made[best]++
		p.make = append(p.make, best)
	}
	for i, it := range s.items {
		switch {
		case has(i) < shares[i] && it.paused:
			p.lack[i] = Failing
		case wanted(i) && !fits(i):
			p.lack[i] = NoMemory
		default:
			p.lack[i] = NoneWarm
		}
	}
}

// sceneOf makes a scene of bytes. Missing bytes are zeros.
func sceneOf(data []byte) scene {
	next := func(n int) int {
		if len(data) == 0 {
			return 0
		}
		b := data[0]
		data = data[1:]
		return int(b) % n
	}
	s := scene{known: next(8) != 7, available: int64(next(200)), committed: int64(next(20)), freeing: int64(next(20)), reserve: int64(next(100)), slots: next(6) - 1, settling: next(4) == 3}
	bounds := map[string]int{"a": next(6), "b": next(4)}
	loads := []float64{0, 0.01, 0.3, 0.5, 1, 2, 7, 40, math.Inf(1)}
	ages := map[int]bool{}
	for range next(6) {
		it := item{project: []string{"a", "b"}[next(2)], load: loads[next(len(loads))], active: next(4) != 3, making: next(3), memory: int64(next(30)),
			failed: next(4) == 3, paused: next(6) == 5}
		it.bound = bounds[it.project]
		if next(3) == 2 {
			it.waiting = next(5)
		}
		for range next(4) {
			age := next(256)
			for ages[age] {
				age++
			}
			ages[age] = true
			it.idle = append(it.idle, spare{member: new(member), since: time.Unix(int64(-age), 0), memory: int64(next(30)), old: age > 240})
		}
		s.items = append(s.items, it)
	}
	return s
}

// agree compares decide with slow, and checks what any decision must keep.
func agree(t *testing.T, s scene) {
	t.Helper()
	got, want := decide(s), slow(s)
	if !slices.Equal(got.make, want.make) || !slices.Equal(got.lack, want.lack) {
		t.Fatalf("made %v, lacking %q, want %v, %q\n%+v", got.make, got.lack, want.make, want.lack, s)
	}
	causes := map[*member]Cause{}
	for _, d := range want.destroy {
		causes[d.member] = d.cause
	}
	for _, d := range got.destroy {
		if causes[d.member] != d.cause {
			t.Fatalf("%v is destroyed as %q, want %q\n%+v", d.since, d.cause, causes[d.member], s)
		}
		delete(causes, d.member) // no sandbox is destroyed twice
	}
	if len(causes) > 0 {
		t.Fatalf("%d are not destroyed\n%+v", len(causes), s)
	}
	bounded(t, s, got)
}

// bounded: a plan keeps the bounds of memory, slots and projects.
func bounded(t *testing.T, s scene, p plan) {
	t.Helper()
	left := s.available - s.committed
	idle := map[string]int{}
	for _, it := range s.items {
		idle[it.project] += len(it.idle)
	}
	for _, d := range p.destroy {
		for _, it := range s.items {
			if slices.ContainsFunc(it.idle, func(sp spare) bool { return sp.member == d.member }) {
				idle[it.project]--
			}
		}
	}
	made := map[int]int{}
	for _, i := range p.make {
		left -= s.items[i].memory
		made[i]++
		if made[i] > s.items[i].bound+s.items[i].waiting {
			t.Fatalf("%d of key %d are made\n%+v", made[i], i, s)
		}
	}
	if len(p.make) > max(0, s.slots) || len(p.make) > 0 && (left < s.reserve || !s.known) {
		t.Fatalf("%d are made with %d slots, %d bytes of %d are left\n%+v", len(p.make), s.slots, left, s.reserve, s)
	}
	for _, it := range s.items {
		if idle[it.project] > it.bound {
			t.Fatalf("project %s keeps %d\n%+v", it.project, idle[it.project], s)
		}
	}
}

// TestDecide compares decide with its slow model in random scenes.
func TestDecide(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	made, destroyed := 0, map[Cause]int{}
	for range 50_000 {
		data := make([]byte, r.IntN(120))
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		s := sceneOf(data)
		agree(t, s)
		p := decide(s)
		made += len(p.make)
		for _, d := range p.destroy {
			destroyed[d.cause]++
		}
	}
	for _, c := range []Cause{Unwanted, Old, Surplus, Pressure} {
		if destroyed[c] < 100 {
			t.Errorf("only %d were destroyed as %s: the scenes are too tame", destroyed[c], c)
		}
	}
	if made < 1000 {
		t.Errorf("only %d were made", made)
	}
}

func FuzzDecide(f *testing.F) {
	f.Add([]byte{0, 150, 0, 0, 10, 3, 2, 2, 3, 0, 4, 0, 0, 10, 0, 0, 2, 1, 1, 9, 10})
	f.Add([]byte{0, 5, 0, 0, 90, 3, 2, 2, 2, 0, 4, 0, 0, 10, 0, 0, 0, 2, 7, 10, 200, 10, 1, 5, 0, 0, 10})
	f.Fuzz(func(t *testing.T, data []byte) { agree(t, sceneOf(data)) })
}

// TestDecideSettles: applying plans to a scene without faults ends, with the same plan from then on: nothing is made only to be destroyed.
func TestDecideSettles(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 5_000 {
		data := make([]byte, r.IntN(120))
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		s := sceneOf(data)
		for i := range s.items {
			s.items[i].making = 0
			s.items[i].waiting = 0
		}
		s.committed, s.freeing, s.settling = 0, 0, false
		clock := int64(1)
		for rounds := 0; ; rounds++ {
			p := decide(s)
			if len(p.make) == 0 && len(p.destroy) == 0 {
				break
			}
			if rounds > 50 || rounds > 0 && len(p.destroy) > 0 {
				t.Fatalf("round %d destroys %+v\n%+v", rounds, p.destroy, s)
			}
			for _, d := range p.destroy {
				s.available += d.memory
				for i := range s.items {
					s.items[i].idle = slices.DeleteFunc(s.items[i].idle, func(sp spare) bool { return sp.member == d.member })
				}
			}
			for _, i := range p.make {
				it := &s.items[i]
				s.available -= it.memory
				clock++
				it.idle = append(it.idle, spare{member: new(member), since: time.Unix(clock, 0), memory: it.memory})
			}
		}
	}
}

// TestRate compares the rate with the sum over all events.
func TestRate(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	var fast rate
	var events []time.Time
	now := time.Unix(0, 0)
	for range 500 {
		now = now.Add(time.Duration(r.ExpFloat64() * float64(2*time.Second)))
		fast.add(now, time.Minute)
		events = append(events, now)
		now := now.Add(time.Duration(r.IntN(90)) * time.Second)
		sum := 0.0
		for _, e := range events {
			sum += math.Exp(-now.Sub(e).Seconds()/60) / 60
		}
		if got := fast.read(now, time.Minute); math.Abs(got-sum) > 1e-9 {
			t.Fatalf("%v, want %v", got, sum)
		}
	}
	if got := fast.read(now, time.Minute); got < 0.3 || got > 0.7 {
		t.Errorf("%v events per second, every other second has one", got)
	}
}

func TestStock(t *testing.T) {
	for _, c := range []struct {
		load        float64
		bound, want int
	}{{0, 2, 1}, {0.3, 9, 1}, {0.4, 9, 2}, {1, 9, 2}, {2, 9, 4}, {9, 20, 12}, {9, 3, 3}, {math.NaN(), 2, 1}, {math.Inf(1), 2, 2}, {-1, 2, 1}, {5, 0, 0}, {5, -1, 0}} {
		if got := stock(c.load, c.bound); got != c.want {
			t.Errorf("load %v, bound %d: %d, want %d", c.load, c.bound, got, c.want)
		}
	}
}

// TestRetry: failures of attempts that ran concurrently count as one.
func TestRetry(t *testing.T) {
	var r retry
	now := time.Unix(0, 0)
	for i := range 10 {
		r.failed(now)
		first := r.at
		r.failed(now)
		if delay := first.Sub(now); r.at != first || delay < min(30*time.Second, time.Second/2<<i) || delay > 90*time.Second {
			t.Errorf("failure %d: %s, then %s", i, delay, r.at.Sub(now))
		}
		now = r.at
	}
}
