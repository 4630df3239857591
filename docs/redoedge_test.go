package docs_test

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/mod/sumdb/note"
)

// TestRedoEdges: all refuse what a signed trailer covers and nothing else needs.
func TestRedoEdges(t *testing.T) {
	t.Parallel()
	s, others := newScene(t), newCheckers(t)
	stranger := signerOf(t, "stranger")
	size := len(s.log.entries)
	for title, c := range map[string]struct {
		change func(map[string][]byte)
		key    string
		want   int
	}{
		"since today": {func(f map[string][]byte) {
			f["since"], f["consistency"] = f["checkpoint"], fmt.Appendf(nil, "old %d\n\n%s", size, f["checkpoint"])
		}, s.key.Public, 0},
		"since today, no proof": {func(f map[string][]byte) {
			f["since"], f["consistency"] = f["checkpoint"], []byte("x")
		}, s.key.Public, 1},
		"since today, a path": {func(f map[string][]byte) {
			f["since"], f["consistency"] = f["checkpoint"], fmt.Appendf(nil, "old %d\nAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n\n%s", size, f["checkpoint"])
		}, s.key.Public, 1},
		"leaves of no records": {func(f map[string][]byte) {
			names := slices.DeleteFunc(slices.Sorted(maps.Keys(f)), func(n string) bool { return filepath.Ext(n) != ".manifest" })
			last := names[len(names)-1]
			f[last[:20]+".leaves"] = []byte("x")
		}, s.key.Public, 1},
		"an empty selection":      {func(f map[string][]byte) { f["selection"] = nil }, s.key.Public, 1},
		"host.pub without an end": {func(f map[string][]byte) { f["host.pub"] = f["host.pub"][:len(f["host.pub"])-1] }, stranger.Public, 1},
	} {
		for name, truth := range map[string]map[string][]byte{"one": s.truth, "two": s.other} {
			files := maps.Clone(truth)
			c.change(files)
			bundle := s.seal(t, files)
			trust := s.trust
			trust.Witnesses, trust.Quorum, trust.Since = nil, 0, nil
			trust.Keys = note.VerifierList(must(note.NewVerifier(c.key)))
			want, err := ours(t, bundle, trust)
			if want != c.want {
				t.Errorf("%s, %s: verify: %d, %v; want %d", title, name, want, err, c.want)
			}
			others.agree(title+", "+name, want, err, bundle, "--key", c.key)
		}
	}
}
