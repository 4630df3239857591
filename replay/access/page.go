package access

import (
	"html/template"
	"net/http"
)

// page says a problem to someone whose browser was sent here, and not by a script.
func page() *template.Template {
	return template.Must(template.New("").Parse(`<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Custody: {{.Title}}</title>
<main><h1>{{.Title}}</h1><p>{{.Detail}}.</p><p>{{.Hint}}.</p><p><a href="/">Go to the first page</a></p></main></html>
`))
}

// refusePage is refuse for the addresses that people's browsers are sent to.
func (g *Gate) refusePage(w http.ResponseWriter, q *request, p *Problem) {
	p = g.slow(q, p)
	g.refused(q, p)
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
	h.Set("Referrer-Policy", "no-referrer")
	p.head(w)
	page().Execute(w, p)
}
