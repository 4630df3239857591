package statement

import (
	"crypto/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"
)

// TestOpenKeys: a key is its text or a file with it, and duplicates count once.
func TestOpenKeys(t *testing.T) {
	var keys [2]string
	for i := range keys {
		_, public, err := note.GenerateKey(rand.Reader, "host")
		if err != nil {
			t.Fatal(err)
		}
		keys[i] = public
	}
	file := filepath.Join(t.TempDir(), "host.pub")
	if err := os.WriteFile(file, []byte(" "+keys[0]+"\r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Dir(file)
	for name, c := range map[string]struct {
		given []string
		want  int // -1: an error
	}{
		"none":                  {nil, 0},
		"a text":                {[]string{keys[0]}, 1},
		"a file":                {[]string{file}, 1},
		"the same twice":        {[]string{keys[0], file, keys[0]}, 1},
		"two":                   {[]string{keys[0], keys[1]}, 2},
		"no key":                {[]string{"nothing"}, -1},
		"a directory":           {[]string{dir}, -1},
		"a key of another hash": {[]string{keys[0][:len("host+")] + "00000000" + keys[0][len("host+00000000"):]}, -1},
	} {
		list, err := OpenKeys(t.Context(), c.given, ParseVerifier)
		if (err != nil) != (c.want < 0) || err == nil && len(list) != c.want {
			t.Errorf("%s: %d keys, %v; want %d", name, len(list), err, c.want)
		}
	}
	if text, err := KeyText(t.Context(), file); err != nil || text != keys[0] || strings.TrimSpace(text) != text {
		t.Errorf("KeyText = %q, %v", text, err)
	}
}
