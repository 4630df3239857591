package report

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"strings"
	"time"
)

//go:embed page.html
var pageText string

//go:embed page.css
var pageStyle string

// page is what page.html shows.
type page struct {
	*Report
	Style  template.CSS
	Policy string
}

// HTML writes the report as one page that needs nothing else: no script, no other file, no
// network. Its Content-Security-Policy stands in it; a server that sends one of its own has to
// allow the same (see ContentSecurityPolicy).
func (r *Report) HTML(w io.Writer) error {
	t, err := template.New("page").Funcs(template.FuncMap{
		"pieces": pieces, "groups": groups, "instant": instant, "class": class, "mark": mark, "more": func(refs []Ref, total uint64) bool { return uint64(len(refs)) < total }, "loud": loud,
		"bytes": func(n int) string { return bytesText(uint64(n)) }, "count": count[int], "number": number[uint64],
		"iso": func(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) },
	}).Parse(pageText)
	if err != nil {
		return fmt.Errorf("report's page: %w", err)
	}
	style := r.style()
	if err := t.Execute(w, page{r, template.CSS(style), policyFor(style)}); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

// ContentSecurityPolicy is what the page allows itself: its own style, and nothing else.
func (r *Report) ContentSecurityPolicy() string { return policyFor(r.style()) }

func policyFor(style string) string {
	sum := sha256.Sum256([]byte(style))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; base-uri 'none'; form-action 'none'"
}

// style ends in what stands at the head of each printed page. The words in it are our own.
func (r *Report) style() string {
	return pageStyle + fmt.Sprintf("@page { @top-left { content: %q } @top-right { content: %q } }\n",
		"Evidence toward "+r.Framework.Title, "made "+instant(r.Generated))
}

// refGroup is what a claim cites of one run.
type refGroup struct {
	Run  string
	Refs []Ref
}

func groups(refs []Ref) []refGroup {
	var list []refGroup
	for _, ref := range refs {
		if n := len(list); n == 0 || list[n-1].Run != ref.Run {
			list = append(list, refGroup{Run: ref.Run})
		}
		g := &list[len(list)-1]
		g.Refs = append(g.Refs, ref)
	}
	return list
}

// class names a status or a state for the style sheet.
func class(s any) string {
	switch fmt.Sprint(s) {
	case string(Supports), string(Holds):
		return "supports"
	case string(Contradicts), string(Fails):
		return "contradicts"
	case string(Lacks), string(Cannot), string(Unchecked):
		return "lacks"
	}
	return "none"
}

// mark is the shape that goes with a status, so that colour is not the only difference.
func mark(s any) string {
	return map[string]string{"supports": "✓", "contradicts": "✕", "lacks": "○", "none": "–"}[class(s)]
}

// loud writes what contradicts in capitals.
func loud(s any) string {
	text := fmt.Sprint(s)
	if text == string(Contradicts) {
		return strings.ToUpper(text)
	}
	return text
}
