package serve

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestWriteLink: files whose service is gone are removed by the next one, those of live services stay, and an expired one goes.
func TestWriteLink(t *testing.T) {
	dir := t.TempDir()
	stale := filepath.Join(dir, linkPrefix+"1")
	if err := os.WriteFile(stale, []byte("dead"), 0o600); err != nil {
		t.Fatal(err)
	}
	live, err := writeLink(t.Context(), dir, "127.0.0.1:2", "two", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	defer live.remove()
	short, err := writeLink(t.Context(), dir, "127.0.0.1:3", "three", time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	defer short.remove()
	if _, err := os.Stat(stale); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file of a service that was killed: %v", err)
	}
	if text, err := os.ReadFile(live.path()); err != nil || string(text) != "two\n" {
		t.Errorf("the live service's: %q, %v", text, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		if _, err := os.Stat(short.path()); errors.Is(err, os.ErrNotExist) {
			break
		}
		if ctx.Err() != nil {
			t.Fatal("the expired link is there")
		}
		time.Sleep(time.Millisecond)
	}
	var none *linkFile
	none.remove()
}
