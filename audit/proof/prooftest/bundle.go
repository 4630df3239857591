// Package prooftest unpacks bundles and packs changed ones, for tests.
package prooftest

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit/proof/archive"
	"github.com/custody-project/custody/audit/proof/statement"
)

// Bundle is the files of a bundle by name.
type Bundle map[string][]byte

// Unpack reads a bundle as any program that reads tar would.
func Unpack(t testing.TB, data []byte) Bundle {
	t.Helper()
	b := Bundle{}
	for r := tar.NewReader(bytes.NewReader(data)); ; {
		h, err := r.Next()
		if err == io.EOF {
			return b
		}
		if err == nil {
			b[h.Name], err = io.ReadAll(r)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// Pack writes the files, the trailer as it is.
func (b Bundle) Pack(t testing.TB) []byte {
	t.Helper()
	var out bytes.Buffer
	a := archive.NewWriter(&out)
	for _, name := range slices.Sorted(maps.Keys(b)) {
		if err := a.Add(name, int64(len(b[name])), bytes.NewReader(b[name])); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// Seal returns the files with a new trailer over them, signed by s. The new trailer states the run and head of the
// old one, or else of the last manifest.
func (b Bundle) Seal(t testing.TB, s note.Signer) Bundle {
	t.Helper()
	sealed := maps.Clone(b)
	delete(sealed, "trailer")
	data := bytes.TrimSuffix(sealed.Pack(t), make([]byte, 1024))
	trailer := b.trailer(t)
	trailer.Files, trailer.Bytes, trailer.SHA256 = uint64(len(sealed)), int64(len(data)), sha256.Sum256(data)
	line, err := json.Marshal(trailer)
	if err == nil {
		sealed["trailer"], err = note.Sign(&note.Note{Text: fmt.Sprintf("custody trailer v1\n%s\n", line)}, s)
	}
	if err != nil {
		t.Fatal(err)
	}
	return sealed
}

func (b Bundle) trailer(t testing.TB) statement.Trailer {
	t.Helper()
	if signed, ok := b["trailer"]; ok {
		trailer, err := statement.ParseTrailer(text(signed))
		if err != nil {
			t.Fatal(err)
		}
		return trailer
	}
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(b)), func(n string) bool { return !strings.HasSuffix(n, ".manifest") })
	if len(names) == 0 {
		return statement.Trailer{V: 1}
	}
	signed := b[names[len(names)-1]]
	m, err := statement.ParseManifest(text(signed))
	if err != nil {
		t.Fatal(err)
	}
	return statement.Trailer{V: 1, Run: m.Run, Head: statement.Digest(signed)}
}

// text is a note without its signatures.
func text(signed []byte) string {
	text, _, _ := strings.Cut(string(signed), "\n\n")
	return text + "\n"
}
