package archive_test

import (
	"bytes"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/custody-project/custody/state/archive/dir"
)

// benchmarked is the device of the benchmarks: 96 MiB that do not compress.
var benchmarked = strings.Repeat(large(7), 32)

// BenchmarkPut archives it in the S3 server on this host, and reads it back. BenchmarkFetch fetches it.
func BenchmarkPut(b *testing.B) {
	a, h := open(b, start(b, false).bucket(b), key(b)), newHost(b, "host-1")
	bases := h.pause(b, benchmarked)
	snap, err := h.Claim(b.Context(), h.binding())
	must(b, err)
	defer snap.Release()
	for b.Loop() {
		_, err := a.Put(b.Context(), snap, time.Time{}, bases)
		must(b, err)
	}
}

func BenchmarkFetch(b *testing.B) {
	a, h := open(b, start(b, false).bucket(b), key(b)), newHost(b, "host-1")
	_, err := h.archive(b, a, h.pause(b, benchmarked))
	must(b, err)
	for b.Loop() {
		_, err := a.Fetch(b.Context(), h.Store, binding, h.name)
		must(b, err)
	}
}

// BenchmarkBare is the reference: it puts and gets the same bytes with the client library alone.
func BenchmarkBare(b *testing.B) {
	s := start(b, false)
	c := s.client(b)
	for b.Loop() {
		_, err := c.PutObject(b.Context(), bucket, "x", strings.NewReader(benchmarked), int64(len(benchmarked)), minio.PutObjectOptions{PartSize: 32 << 20})
		must(b, err)
		r, err := c.GetObject(b.Context(), bucket, "x", minio.GetObjectOptions{})
		must(b, err)
		_, err = io.Copy(io.Discard, r)
		must(b, err)
		must(b, r.Close())
	}
}

// BenchmarkList lists 10,000 archived sandboxes of a tenant in a directory.
func BenchmarkList(b *testing.B) {
	d, err := dir.New(filepath.Join(b.TempDir(), "archive"))
	must(b, err)
	for i := range 10000 {
		must(b, d.Put(b.Context(), fmt.Sprintf("tenant-acme/r-%05d.snapshot", i), bytes.NewReader(nil)))
	}
	a := open(b, d, key(b))
	for b.Loop() {
		items, err := a.List(b.Context(), "acme")
		if err != nil || len(items) != 10000 {
			b.Fatalf("%d, %v", len(items), err)
		}
	}
}
