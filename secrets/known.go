package secrets

import (
	"bytes"
	"crypto/sha256"
	"maps"
	"slices"
	"sync"

	"github.com/custody-project/custody/redact"
)

// known has information on all values of a run: which names have equal values, since the redactor has only one name for
// a value, and the markers of all values. It is safe for concurrent use.
type known struct {
	redactor *redact.Redactor

	mu      sync.Mutex            // guards the fields below
	names   map[[32]byte][]string // by the value's hash
	twins   map[string][]string   // other names with the value of the key
	markers [][]byte              // of all values
}

func newKnown(r *redact.Redactor) *known {
	return &known{redactor: r, names: map[[32]byte][]string{}, twins: map[string][]string{}}
}

// remember stores which names have equal values, and the markers. It returns the names whose values are new.
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

// alike returns the names of all secrets that have had the same value as name, beginning with name.
func (k *known) alike(name string) []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]string{name}, k.twins[name]...)
}

// unmarked returns text without the markers in it, which the redactor treats like their values.
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

// find returns the names of the values in text, in any encoding of the redactor. It ignores markers.
func (k *known) find(text []byte) []string { return k.redactor.Find(k.unmarked(text)) }

func union(a, b []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(slices.Concat(a, b))))
}
