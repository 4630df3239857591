package access

import (
	"html/template"
	"net/http"

	"github.com/custody-project/custody/audit"
)

// refuser answers requests that the gate refuses, and has each recorded or counted.
type refuser struct {
	journal *journal
	failed  *limits // failed logins of addresses
}

// refuse answers with a problem, once it is recorded or counted.
func (f *refuser) refuse(w http.ResponseWriter, q *request, p *Problem) {
	p = f.slow(q, p)
	if !(q.rule.anyTenant && p.reason() == reasonNobody) { // a page that asks whether it has a session
		f.refused(q, p)
	}
	p.Write(w, q.Request)
}

// slow turns a failed login into a request to wait, where an address has had many.
func (f *refuser) slow(q *request, p *Problem) *Problem {
	if p.Status != http.StatusUnauthorized || p.reason() == reasonNobody {
		return p
	}
	wait, ok := f.failed.take(network(q.from))
	if ok {
		return p
	}
	p = NewProblem(http.StatusTooManyRequests, "failed-logins", "there were too many failed logins from this address", "wait as long as Retry-After states, then try a valid credential")
	p.After = wait
	return p
}

// refused records a refusal, or counts it.
func (f *refuser) refused(q *request, p *Problem) {
	a := q.event
	a.Verdict, a.Reason, a.Status = audit.Deny, p.reason(), p.Status
	f.journal.refuse(q.Context(), q.from, a)
}

// refusePage is refuse for the addresses that people's browsers are sent to.
func (f *refuser) refusePage(w http.ResponseWriter, q *request, p *Problem) {
	p = f.slow(q, p)
	f.refused(q, p)
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
	h.Set("Referrer-Policy", "no-referrer")
	p.head(w)
	page().Execute(w, struct {
		*Problem
		Home bool // / is Custody's page
	}{p, !q.rule.Port})
}

// page shows a problem to a user whose browser navigated here.
func page() *template.Template {
	return template.Must(template.New("").Parse(`<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Custody: {{.Title}}</title>
<main><h1>{{.Title}}</h1><p>{{.Detail}}.</p><p>{{.Hint}}.</p>{{if .Home}}<p><a href="/">Go to the first page</a></p>{{end}}</main></html>
`))
}
