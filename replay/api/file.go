package api

import (
	"net/http"
	"time"
)

// fileWriter sends an answer of any length. A reader may be slow, but not stand still.
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
	// standStill is how long a download may wait for its reader.
	standStill = 30 * time.Second
	// maxDownloads bounds all downloads, and maxDownloadsOf those of one principal.
	maxDownloads, maxDownloadsOf = 32, 4
)
