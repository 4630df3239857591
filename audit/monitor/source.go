package monitor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/transparency-dev/tessera/api"
	"github.com/transparency-dev/tessera/api/layout"

	"github.com/custody-project/custody/internal/regular"
)

// Maximum sizes, in bytes. An entry of a host's log has two lines of a few hundred bytes.
const (
	maxCheckpoint = 64 << 10
	maxBundle     = layout.TileWidth * 1 << 10
)

// fetchTimeout bounds one request.
const fetchTimeout = 30 * time.Second

// Source is where a log publishes (C2SP tlog-tiles). It is not trusted.
type Source interface {
	// Checkpoint returns the last published signed note.
	Checkpoint(ctx context.Context) ([]byte, error)
	// Bundle returns the first p entries of a bundle, all 256 if p is 0.
	Bundle(ctx context.Context, index uint64, p uint8) ([][]byte, error)
}

// OpenSource opens the log in a directory, or at an http or https URL that serves such a directory.
func OpenSource(where string) (Source, error) {
	if u, err := url.Parse(where); err == nil && (u.Scheme == "http" || u.Scheme == "https") {
		if u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
			return nil, fmt.Errorf("%.200q is not a URL of a log", where)
		}
		return tiles{&web{u, &http.Client{Timeout: fetchTimeout}}}, nil
	}
	info, err := os.Stat(where)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("%s is not a directory of a log", where)
	}
	return tiles{disk(where)}, nil
}

// files reads the files of a log, by their names relative to its directory.
type files interface {
	// get returns a file of at most limit bytes. The error wraps fs.ErrNotExist if it does not exist.
	get(ctx context.Context, name string, limit int64) ([]byte, error)
	// wider returns the widths above p for which a directory may have a partial bundle.
	wider(dir string, p uint8) []uint8
}

type tiles struct{ files files }

func (t tiles) Checkpoint(ctx context.Context) ([]byte, error) {
	return t.files.get(ctx, "checkpoint", maxCheckpoint)
}

// Bundle falls back to a wider bundle, which begins with the same entries: a log may remove the narrower ones.
func (t tiles) Bundle(ctx context.Context, index uint64, p uint8) ([][]byte, error) {
	widths := []uint8{p}
	if p > 0 {
		widths = append(widths, 0)
		widths = append(widths, t.files.wider(layout.EntriesPath(index, 0)+".p", p)...)
	}
	var err error
	for _, w := range widths {
		var text []byte
		if text, err = t.files.get(ctx, layout.EntriesPath(index, w), maxBundle); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		var b api.EntryBundle
		if err := b.UnmarshalText(text); err != nil || len(b.Entries) != width(w) {
			return nil, fmt.Errorf("%s is not a bundle of %d entries", layout.EntriesPath(index, w), width(w))
		}
		return b.Entries[:width(p)], nil
	}
	return nil, err
}

func width(p uint8) int {
	if p == 0 {
		return layout.TileWidth
	}
	return int(p)
}

// between yields the entries from one size of a log to another.
func between(ctx context.Context, s Source, from, to uint64) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for from < to {
			index := from / layout.TileWidth
			bundle, err := s.Bundle(ctx, index, layout.PartialTileSize(0, index, to))
			if err == nil {
				err = ctx.Err()
			}
			if err != nil {
				yield(nil, fmt.Errorf("entries from %d on: %w", from, err))
				return
			}
			for _, entry := range bundle[from%layout.TileWidth:] {
				if !yield(entry, nil) {
					return
				}
				from++
			}
		}
	}
}

// disk is a log in a directory.
type disk string

func (d disk) get(_ context.Context, name string, limit int64) ([]byte, error) {
	f, err := regular.Open(filepath.Join(string(d), filepath.FromSlash(name)))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return bounded(f, name, limit)
}

func (d disk) wider(dir string, p uint8) (all []uint8) {
	names, _ := os.ReadDir(filepath.Join(string(d), filepath.FromSlash(dir)))
	for _, n := range names {
		if w, err := strconv.ParseUint(n.Name(), 10, 8); err == nil && uint8(w) > p {
			all = append(all, uint8(w))
		}
	}
	return all
}

// web is a log that an HTTP server publishes.
type web struct {
	base   *url.URL
	client *http.Client
}

func (w *web) get(ctx context.Context, name string, limit int64) ([]byte, error) {
	where := w.base.JoinPath(strings.Split(name, "/")...).String()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, where, nil)
	if err != nil {
		return nil, err
	}
	resp, err := w.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
		return bounded(resp.Body, where, limit)
	case http.StatusNotFound, http.StatusGone:
		return nil, fmt.Errorf("%s: %w", where, fs.ErrNotExist)
	}
	return nil, fmt.Errorf("%s: status %d", where, resp.StatusCode)
}

// wider returns nothing, since HTTP cannot list a directory: the bundles of the last two checkpoints exist.
func (w *web) wider(string, uint8) []uint8 { return nil }

// bounded reads to the end, up to limit bytes.
func bounded(r io.Reader, name string, limit int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("%s has more than %d bytes", name, limit)
	}
	return data, err
}
