package redact

import (
	"math/bits"
	"slices"
	"sync/atomic"
)

// index finds the entries whose key is the window of the last symbols. It is called for each byte of a text, so the
// common case is a lookup in a filter that fits into a cache and has no match. A value has more than a thousand forms:
// an automaton for all would have millions of states, and would miss every cache.
//
//	window --hash--> filter -- no --> next byte
//	                   | maybe
//	                   v
//	                shelves -- no --> next byte
//	                   | entries
//	                   v
//	               candidates
//
// Shelves never change. Adding a value adds a shelf, and small ones are merged, so that adding many values is cheap and
// there are few shelves to search.
type index struct {
	shelves []*shelf
	keys    *filter // of entries
	begins  *filter // prefixes of keys, of 1 to windowSize-1 symbols
	lead    uint8   // the maximum of all forms
	short   uint8   // bit n: there are keys of n symbols, n below windowSize
}

// hash distributes a window over 64 bits.
func hash(key uint64) uint64 { return (key ^ key>>29) * 0x9e3779b97f4a7c15 }

// begin returns the filters' key of the first n symbols of an entry's key.
func begin(key uint64, n int) uint64 { return key&(1<<(8*n)-1) ^ uint64(n)<<58 }

// filter is a Bloom filter whose two bits are in one word. Bits are only ever set, and a superfluous one costs a lookup,
// never a match: so all successive indexes share it, and it is read while it is written.
type filter struct {
	words []atomic.Uint64
	mask  uint64
	room  int // remaining capacity, in keys
}

// bitsPerKey lets about one in 300 random keys pass the filter.
const bitsPerKey = 32

func newFilter(keys int) *filter {
	n := bits.Len(uint(max(keys, 1<<7) * bitsPerKey / 64))
	return &filter{words: make([]atomic.Uint64, 1<<n), mask: 1<<n - 1, room: (1 << n) * 64 / bitsPerKey}
}

func (f *filter) add(key uint64) {
	h := hash(key)
	w := &f.words[h>>32&f.mask]
	if m := wordMask(h); w.Load()&m != m {
		w.Or(m)
	}
}

// wordMask returns the bits of a key within its word.
func wordMask(h uint64) uint64 { return 1<<(h>>26&63) | 1<<(h>>20&63) }

func (f *filter) has(key uint64) bool {
	h := hash(key)
	m := wordMask(h)
	return f.words[h>>32&f.mask].Load()&m == m
}

// shelf is a list of entries sorted by hash, with the start of each range of hashes.
type shelf struct {
	entries []entry
	first   []uint32
	shift   uint8
}

func newShelf(entries []entry) *shelf {
	n := bits.Len(uint(len(entries)))
	s := &shelf{entries: entries, first: make([]uint32, 1<<n+1), shift: uint8(64 - n)}
	for i := range entries {
		s.first[hash(entries[i].key)>>s.shift+1] = uint32(i + 1)
	}
	for i := 1; i < len(s.first); i++ {
		s.first[i] = max(s.first[i], s.first[i-1])
	}
	return s
}

// lookup returns the entries around those with the key.
func (s *shelf) lookup(key uint64) []entry {
	at := hash(key) >> s.shift
	return s.entries[s.first[at]:s.first[at+1]]
}

// with returns an index that also has the entries, which must be sorted; x may be nil.
func (x *index) with(entries []entry) *index {
	if x == nil {
		x = &index{}
		entries = merge(entries, []entry{markEntry})
	}
	next := &index{shelves: slices.Clone(x.shelves), keys: x.keys, begins: x.begins, short: x.short, lead: x.lead}
	for n := len(next.shelves); n > 0 && len(next.shelves[n-1].entries) < 2*len(entries); n-- {
		entries = merge(next.shelves[n-1].entries, entries)
		next.shelves = next.shelves[:n-1]
	}
	next.shelves = append(next.shelves, newShelf(entries))
	next.filters(entries)
	return next
}

func merge(a, b []entry) []entry {
	out := make([]entry, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		if compareEntries(a[0], b[0]) <= 0 {
			out, a = append(out, a[0]), a[1:]
		} else {
			out, b = append(out, b[0]), b[1:]
		}
	}
	return append(append(out, a...), b...)
}

// filters adds the new entries to the filters, or all entries to larger ones.
func (x *index) filters(entries []entry) {
	total := 0
	for _, s := range x.shelves {
		total += len(s.entries)
	}
	if x.keys != nil && total <= x.keys.room {
		x.note(entries)
		return
	}
	x.keys, x.begins = newFilter(2*total), newFilter(4*total)
	for _, s := range x.shelves {
		x.note(s.entries)
	}
}

func (x *index) note(entries []entry) {
	last := uint64(0)
	for i := range entries {
		e := &entries[i]
		x.lead = max(x.lead, e.form.unpack().lead)
		if e.key == last && i > 0 {
			continue
		}
		last = e.key
		n := e.symbols()
		if n < windowSize {
			x.short |= 1 << n
			x.keys.add(begin(e.key, n))
		} else {
			x.keys.add(e.key)
		}
		for k := 1; k < n; k++ {
			x.begins.add(begin(e.key>>(8*(n-k)), k))
		}
	}
}

// next reads t from i on, after the symbols in window, and returns the position after which the window first may be a
// key, and the byte after it; len(t) and false if there is none.
func (x *index) next(t []byte, i int, window uint64) (int, uint64, bool) {
	if x.short != 0 {
		return x.nextShort(t, i, window)
	}
	words, mask := x.keys.words, x.keys.mask
	for ; i < len(t); i++ {
		s := symbols[t[i]]
		window = window<<(s>>8&63) | uint64(s&0xff)
		h := hash(window)
		w := words[h>>32&mask].Load()
		if w>>(h>>26&63)&1 == 0 || w>>(h>>20&63)&1 == 0 || s == 0 {
			continue
		}
		return i + 1, window, true
	}
	return i, window, false
}

// nextShort is next if there are keys of fewer symbols.
func (x *index) nextShort(t []byte, i int, window uint64) (int, uint64, bool) {
	for ; i < len(t); i++ {
		s := symbols[t[i]]
		if s == 0 {
			continue
		}
		if window = window<<8 | uint64(s&0xff); x.maybe(window) {
			return i + 1, window, true
		}
	}
	return i, window, false
}

// maybe reports whether the window, or its end, may be a key.
func (x *index) maybe(window uint64) bool {
	if x.keys.has(window) {
		return true
	}
	for n := 1; n < windowSize && x.short != 0; n++ {
		if x.short&(1<<n) != 0 && x.keys.has(begin(window, n)) {
			return true
		}
	}
	return false
}

// entries calls f for each entry whose key is the window's last symbols.
func (x *index) entries(window uint64, f func(*entry)) {
	for _, s := range x.shelves {
		only(s.lookup(window), window, windowSize, f)
		for n := 1; n < windowSize && x.short != 0; n++ {
			key := window & (1<<(8*n) - 1)
			only(s.lookup(key), key, n, f)
		}
	}
}

func only(list []entry, key uint64, n int, f func(*entry)) {
	for i := range list {
		if list[i].key == key && list[i].symbols() == n {
			f(&list[i])
		}
	}
}

// beginning returns how many of the window's last symbols may be the beginning of a key.
func (x *index) beginning(window uint64) int {
	for n := windowSize - 1; n > 0; n-- {
		if x.begins.has(begin(window, n)) {
			return n
		}
	}
	return 0
}
