package api

import (
	"bytes"
	"context"
	"io"
	"iter"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/custody-project/custody/export"
	"github.com/custody-project/custody/replay"
	"github.com/custody-project/custody/store"
)

// Export is an export format.
type Export struct {
	Name   string // in requests
	Type   string // media type
	Suffix string // of a file, without the dot
	OneRun bool   // cannot contain several runs
	// Write writes the runs' records that f selects. It is safe for concurrent use.
	Write func(ctx context.Context, w io.Writer, src Source, f replay.Filter, runs []store.Run) error
}

// Lines is the records' exact bytes, one per line, without erased ones. A marked record is an object with the mark
// and the record.
func Lines() Export {
	return Export{Name: "ndjson", Type: "application/x-ndjson", Suffix: "ndjson", Write: writeLines}
}

func writeLines(ctx context.Context, w io.Writer, src Source, f replay.Filter, runs []store.Run) error {
	for row, err := range selected(ctx, src, f, runs) {
		if err != nil {
			return err
		}
		line := row.Body
		switch {
		case row.Mark != nil:
			if line, err = store.MarkedLine(row, *row.Mark); err != nil {
				return err
			}
		case row.Erased != nil:
			continue
		}
		if _, err := w.Write(append(line, '\n')); err != nil {
			return err
		}
	}
	return nil
}

// FormatLines is a SIEM's format, one line per record.
func FormatLines(format export.Format, mediaType, suffix string) Export {
	return Export{Name: format.Name(), Type: mediaType, Suffix: suffix,
		Write: func(ctx context.Context, w io.Writer, src Source, f replay.Filter, runs []store.Run) error {
			_, err := export.Write(ctx, lineWriter{w}, unfed{src}, picky{format, f}, export.Filter{Kinds: f.Kinds}, runs...)
			return err
		}}
}

// Rows is a format that is written from a run's rows in order. Several runs together
// are a table: one line of column names, and the lines of each run. It cannot show marks: for a record that
// differs from what was signed, Write returns a *store.MarkError before it writes anything.
func Rows(name, mediaType, suffix string, oneRun bool, write func(w io.Writer, run store.Run, rows iter.Seq2[store.Row, error]) error) Export {
	return Export{Name: name, Type: mediaType, Suffix: suffix, OneRun: oneRun,
		Write: func(ctx context.Context, w io.Writer, src Source, f replay.Filter, runs []store.Run) error {
			for _, err := range store.Signed(selected(ctx, src, f, runs)) {
				if err != nil {
					return err
				}
			}
			for i, run := range runs {
				if err := write(&headless{w: w, head: i > 0}, run, store.Signed(selected(ctx, src, f, runs[i:i+1]))); err != nil {
					return err
				}
			}
			return nil
		}}
}

// headless leaves out the first line while head is set.
type headless struct {
	w    io.Writer
	head bool
}

// Write implements io.Writer.
func (h *headless) Write(p []byte) (int, error) {
	rest := p
	if h.head {
		_, after, found := bytes.Cut(p, []byte("\n"))
		rest, h.head = after, !found
	}
	if len(rest) > 0 {
		if _, err := h.w.Write(rest); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// selected yields those of the runs' rows that f selects, including erased ones.
func selected(ctx context.Context, src Source, f replay.Filter, runs []store.Run) iter.Seq2[store.Row, error] {
	return func(yield func(store.Row, error) bool) {
		for _, run := range runs {
			for row, err := range src.Records(ctx, query(run, f, 0)) {
				if err == nil && !replay.Match(f, row) {
					continue
				}
				if !yield(row, err) || err != nil {
					return
				}
			}
		}
	}
}

// unfed is an export.Source that reads each run by itself.
type unfed struct{ Source }

// Feed implements export.Source.
func (unfed) Feed(context.Context, string, int) ([]store.Ref, error) { return nil, nil }

// picky is a format that leaves out events that the filter does not select.
type picky struct {
	export.Format
	filter replay.Filter
}

// Append implements export.Format.
func (p picky) Append(dst []byte, e export.Event) ([]byte, error) {
	row := store.Row{Head: store.Head{Run: e.Run, Seq: e.Seq, Time: e.Time}, Tenant: e.Tenant, Body: e.Body}
	if e.Erased {
		row.Erased = new([32]byte)
	} else if head, err := store.ParseHead(e.Body); err == nil {
		row.Head = head
	}
	if !replay.Match(p.filter, row) {
		return dst, nil
	}
	return p.Format.Append(dst, e)
}

// lineWriter leaves out the empty lines of events that the format does not have.
type lineWriter struct{ w io.Writer }

// Write implements io.Writer; package export writes a line at a time.
func (l lineWriter) Write(p []byte) (int, error) {
	if len(p) == 1 {
		return 1, nil
	}
	return l.w.Write(p)
}

// formats are the export formats.
type formats []Export

// named finds a format by its name.
func (fs formats) named(name string) (Export, error) {
	i := slices.IndexFunc(fs, func(e Export) bool { return e.Name == name })
	if i < 0 {
		var names []string
		for _, e := range fs {
			names = append(names, e.Name)
		}
		return Export{}, bad("formats are "+strings.Join(names, ", "), "there is no format %.40q", name)
	}
	return fs[i], nil
}

// exportsHandler sends the records of a run as a file.
type exportsHandler struct {
	runFinder
	formats   formats
	markers   *markers
	downloads *downloads
	archive   func(ctx context.Context, w io.Writer, run store.Run, s Selection) error // writes a bundle; nil: there are none
	now       func() time.Time
}

func (h *exportsHandler) export(w http.ResponseWriter, r *request) error {
	run, err := h.find(r)
	if err != nil {
		return err
	}
	e, err := h.formats.named(orElse(r.str("format"), "ndjson"))
	if err != nil {
		return err
	}
	f, err := filterOf(r, run, h.now())
	if err != nil {
		return err
	}
	return h.downloads.send(w, r, e.Type, run.ID+"."+e.Suffix, func(w io.Writer) error {
		return h.markers.read(r.Context(), h.source, func(src Source) error { return e.Write(r.Context(), w, src, f, []store.Run{run}) })
	})
}

func orElse(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

func (h *exportsHandler) bundle(w http.ResponseWriter, r *request) error {
	if h.archive == nil {
		return errNotHere("bundles")
	}
	run, err := h.find(r)
	if err != nil {
		return err
	}
	sel := Selection{By: r.who.Name}
	if sel.First, err = r.number("from_seq", 0, store.MaxSeq); err != nil {
		return err
	}
	if sel.Last, err = r.number("to_seq", 0, store.MaxSeq); err != nil {
		return err
	}
	if sel.Last != 0 && sel.First > sel.Last {
		return bad("give the earlier one as from_seq", "from_seq is behind to_seq")
	}
	if since := r.str("since"); since != "" {
		sel.Since = []byte(since)
	}
	return h.downloads.send(w, r, "application/x-tar", run.ID+".tar", func(w io.Writer) error {
		return h.archive(r.Context(), w, run, sel)
	})
}
