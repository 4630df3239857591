package api

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/store"
)

// ReportRequest selects the contents of a report.
type ReportRequest struct {
	Framework string
	Format    string // json, html or bundle
	Tenant    string
	By        string // the principal of the request
	Runs      []CheckedRun
	From, To  time.Time // when the runs began, if they were chosen by time; To is exclusive
}

// CheckedRun is a run with the result of its verification.
type CheckedRun struct {
	Run          store.Run
	Verification Verification
	Report       *proof.Report // nil if there is no result
}

// reportTypes are the media types of reports, and what their files are called.
func reportType(format string) (mediaType, suffix string) {
	switch format {
	case "html":
		return "text/html; charset=utf-8", "html"
	case "bundle":
		return "application/zip", "zip"
	}
	return "application/json", "json"
}

const (
	// checksFor is how long a report waits for verifications; it names the runs that were not verified in time.
	checksFor = time.Minute
	// reportPolicy allows only the style and images of the report itself.
	reportPolicy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'; sandbox"
)

// reportsHandler makes reports over runs.
type reportsHandler struct {
	runFinder
	checks     *checks
	downloads  *downloads
	frameworks []string
	write      func(ctx context.Context, w io.Writer, q ReportRequest) error // nil: there are none
}

func (h *reportsHandler) report(w http.ResponseWriter, r *request) error {
	if h.write == nil {
		return errNotHere("reports")
	}
	q := ReportRequest{Framework: r.str("framework"), Tenant: r.who.Tenant, By: r.who.Name}
	if !slices.Contains(h.frameworks, q.Framework) {
		return bad("give one of "+strings.Join(h.frameworks, ", "), "framework is %.40q", q.Framework)
	}
	var err error
	if q.Format, err = r.oneOf("format", "json", "html", "bundle"); err != nil {
		return err
	}
	if q.From, q.To, err = r.dates(); err != nil {
		return err
	}
	runs, err := h.reported(r, q)
	if err != nil {
		return err
	}
	q.Runs = h.checked(r.Context(), runs)
	mediaType, suffix := reportType(q.Format)
	return h.downloads.send(w, r, mediaType, q.Framework+"."+suffix, func(out io.Writer) error { return h.write(r.Context(), out, q) })
}

// reported returns the runs of a report.
func (h *reportsHandler) reported(r *request, q ReportRequest) ([]store.Run, error) {
	names := r.str("run")
	if (names == "") == (q.From.IsZero() && q.To.IsZero()) {
		return nil, bad("name runs with commas between, or a time by from and to, and not both", "no runs are selected")
	}
	if names == "" {
		return h.during(r, store.Filter{From: q.From, To: q.To}, maxReportRuns)
	}
	return h.allNamed(r, strings.Split(names, ","))
}

// checked verifies the runs that have no current result, and returns all with their results.
func (h *reportsHandler) checked(ctx context.Context, runs []store.Run) []CheckedRun {
	ctx, cancel := context.WithTimeout(ctx, checksFor)
	defer cancel()
	list := make([]CheckedRun, len(runs))
	for i, run := range runs {
		if h.checks.verify != nil {
			h.checks.await(ctx, run)
		}
		list[i] = CheckedRun{Run: run, Verification: h.checks.verification(run), Report: h.checks.report(run)}
	}
	return list
}
