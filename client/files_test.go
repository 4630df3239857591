package client_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/custody-project/custody/client"
)

// TestWriteAgain: a content that can be read again is sent again when there were too many requests.
func TestWriteAgain(t *testing.T) {
	content := bytes.Repeat([]byte("content"), 1<<17)
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, append([]byte("before"), content...), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Seek(6, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		content io.Reader
		again   bool
	}{
		"file": {f, true}, "bytes": {bytes.NewReader(content), true}, "stream": {io.MultiReader(bytes.NewReader(content)), false},
	} {
		t.Run(name, func(t *testing.T) {
			requests := 0
			var got []byte
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if requests++; requests == 1 {
					w.Header().Set("Content-Type", "application/problem+json")
					w.WriteHeader(http.StatusTooManyRequests)
					io.WriteString(w, `{"type":"urn:custody:problem:rate","title":"too many"}`)
					return
				}
				got, _ = io.ReadAll(r.Body)
				io.WriteString(w, "{}")
			}))
			defer s.Close()
			client, err := client.New(s.URL, "token")
			if err != nil {
				t.Fatal(err)
			}
			_, err = client.Sandbox("s").Files("").Write(t.Context(), "/f", c.content, 0, false)
			if c.again != (err == nil) || c.again != bytes.Equal(got, content) {
				t.Errorf("%v; after %d requests it has %d bytes", err, requests, len(got))
			}
		})
	}
}
