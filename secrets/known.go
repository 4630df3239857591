package secrets

import (
	"bytes"
	"crypto/sha256"
	"maps"
	"slices"
	"sync"

	"github.com/custody-project/custody/redact"
)

// known is what an Issuer remembers of all values of a run: which names have equal ones, as the redactor knows only one
// of them, and the markers that stand for them. It is safe for concurrent use.
type known struct {
	redactor *redact.Redactor

	mu      sync.Mutex            // guards what follows
	names   map[[32]byte][]string // by the value's sum
	twins   map[string][]string   // names that had the same value as the key's
	markers [][]byte              // of all values
}

func newKnown(r *redact.Redactor) *known {
	return &known{redactor: r, names: map[[32]byte][]string{}, twins: map[string][]string{}}
}

// remember notes which names have equal values, and the markers. It returns the names
// whose values are new.
func (k *known) remember(values map[string][]byte) []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var fresh []string
	for _, name := range slices.Sorted(maps.Keys(values)) {
		sum := sha256.Sum256(values[name])
		if len(k.names[sum]) == 0 {
			fresh = append(fresh, name)
			k.markers = append(k.markers, []byte("[REDACTED:"+name+":"+k.redactor.Tag(values[name])+"]"))
		}
		if slices.Contains(k.names[sum], name) {
			continue
		}
		k.names[sum] = append(k.names[sum], name)
		for _, n := range k.names[sum] {
			k.twins[n] = union(k.twins[n], k.names[sum])
		}
	}
	return fresh
}

// alike are the names of all secrets that had the same value as name, itself first.
func (k *known) alike(name string) []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]string{name}, k.twins[name]...)
}

// unmarked returns text without the markers that stand in it: the redactor takes one for
// its value.
func (k *known) unmarked(text []byte) []byte {
	if !bytes.Contains(text, []byte("[REDACTED:")) {
		return text
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, m := range k.markers {
		text = bytes.ReplaceAll(text, m, []byte{0})
	}
	return text
}

// find returns the names of the values in text, in any encoding that the redactor knows. Markers do not count.
func (k *known) find(text []byte) []string { return k.redactor.Find(k.unmarked(text)) }

func union(a, b []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(slices.Concat(a, b))))
}
