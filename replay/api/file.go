package api

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"
)

// fileWriter sends a response of any length. The client may be slow, but may not stop reading.
type fileWriter struct {
	w      http.ResponseWriter
	rc     *http.ResponseController
	header func() // sets the headers
	begun  bool
}

func (f *fileWriter) begin() {
	if !f.begun {
		f.begun = true
		f.header()
		f.w.WriteHeader(http.StatusOK)
	}
}

// Write implements io.Writer.
func (f *fileWriter) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	f.begin()
	if err := deadline(f.rc, standStill); err != nil {
		return 0, err
	}
	n, err := f.w.Write(p)
	if err != nil {
		return n, err
	}
	return n, deadline(f.rc, 0)
}

const (
	// standStill is how long a download may wait for its client.
	standStill = 30 * time.Second
	// maxDownloads bounds all downloads, and maxDownloadsOf those of one principal.
	maxDownloads, maxDownloadsOf = 32, 4
)

// downloads sends files, and limits how many concurrently.
type downloads struct {
	turnstile
	log *slog.Logger
}

// send sends a file while it is produced. An error before its first byte is answered with a problem;
// after it, the connection is aborted, so that the client does not take a part for the whole.
func (d *downloads) send(w http.ResponseWriter, r *request, mediaType, name string, write func(io.Writer) error) error {
	leave, err := d.enter(r.who.Tenant+"\x00"+r.who.Name, "downloads")
	if err != nil {
		return err
	}
	defer leave()
	f := &fileWriter{w: w, rc: http.NewResponseController(w), header: func() { attach(w, mediaType, name) }}
	if err := deadline(f.rc, 0); err != nil {
		return err
	}
	err = write(f)
	_ = deadline(f.rc, standStill) // for the end of the response
	switch {
	case err == nil:
		f.begin() // it may be empty
		return nil
	case !f.begun:
		return err
	}
	d.log.Error("a download broke off", "route", r.Pattern, "err", err)
	panic(http.ErrAbortHandler)
}

// attach sets the headers of a file. Browsers do not show it as a page, except a report.
func attach(w http.ResponseWriter, mediaType, name string) {
	w.Header().Set("Content-Type", mediaType)
	if strings.HasPrefix(mediaType, "text/html") {
		w.Header().Set("Content-Security-Policy", reportPolicy)
		return
	}
	w.Header().Set("Content-Disposition", fmt.Sprintf("attachment; filename=%q", fileName(name)))
}

// fileName removes characters with a meaning in headers and paths.
func fileName(name string) string {
	return strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '.' || c == '_' {
			return c
		}
		return '_'
	}, name)
}
