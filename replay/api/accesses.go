package api

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/store"
)

// AccessEvent is an access to records of a tenant, or one that was refused.
type AccessEvent struct {
	Run  string    `json:"run"` // the access log
	Seq  uint64    `json:"seq"`
	Time time.Time `json:"time"`
	audit.Access

	Mark *store.Mark `json:"verification,omitempty"` // set if the record differs from what was signed, or if that cannot be determined
}

// accessesHandler lists access events.
type accessesHandler struct{ searcher }

// list lists the accesses to records of the principal's tenant, including refused ones, newest first. It reads
// the access logs of hosts, and skips events about other tenants, and about other runs than one that the query names.
func (h *accessesHandler) list(w http.ResponseWriter, r *request) error {
	p := searchPage{accessLog: true}
	p.Kinds = []audit.Kind{audit.KindAccess}
	about := r.str("about")
	p.accept = func(row store.Row) bool {
		event, ok := accessOf(row)
		return ok && event.Tenant == r.who.Tenant && (about == "" || string(event.About) == about)
	}
	var err error
	if p.From, p.To, err = r.dates(); err == nil {
		err = h.begin(r, &p)
	}
	if err != nil {
		return err
	}
	if p.From.IsZero() {
		p.From = time.Unix(0, 0).UTC()
	}
	if err := h.fill(r, &p); err != nil {
		return err
	}
	var page struct {
		Events  []AccessEvent `json:"access"`
		Partial bool          `json:"partial"`
		Next    string        `json:"next,omitempty"`
	}
	page.Events, page.Partial = []AccessEvent{}, p.partial
	for i, row := range p.rows {
		event, _ := accessOf(row)
		event.Mark = p.marks[i]
		page.Events = append(page.Events, event)
	}
	page.Next = h.next(r, &p)
	return answer(w, page)
}

// accessOf reads an access event that a host recorded.
func accessOf(row store.Row) (AccessEvent, bool) {
	var r audit.Record
	if json.Unmarshal(row.Body, &r) != nil || r.Access == nil || r.Observer != audit.Host {
		return AccessEvent{}, false
	}
	return AccessEvent{Run: row.Run, Seq: row.Seq, Time: row.Time, Access: *r.Access}, true
}
