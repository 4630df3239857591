package api

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/store"
)

// Look is an access event: someone looked at the asker's tenant, or was refused.
type Look struct {
	Run  string    `json:"run"` // the access log
	Seq  uint64    `json:"seq"`
	Time time.Time `json:"time"`
	audit.Access

	Mark *store.Mark `json:"verification,omitempty"` // where the record is not what was signed, or that is not known
}

// accessesHandler answers who looked at records.
type accessesHandler struct{ searcher }

// list lists who looked at records of the asker's tenant, or tried to, newest first. The logs
// are those of hosts; what they have about other tenants is passed over.
func (h *accessesHandler) list(w http.ResponseWriter, r *request) error {
	p := searchPage{accessLog: true}
	p.Kinds = []audit.Kind{audit.KindAccess}
	p.accept = func(row store.Row) bool {
		look, ok := lookOf(row)
		return ok && look.Tenant == r.who.Tenant
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
		Looks   []Look `json:"access"`
		Partial bool   `json:"partial"`
		Next    string `json:"next,omitempty"`
	}
	page.Looks, page.Partial = []Look{}, p.partial
	for i, row := range p.rows {
		look, _ := lookOf(row)
		look.Mark = p.marks[i]
		page.Looks = append(page.Looks, look)
	}
	page.Next = h.next(r, &p)
	return answer(w, page)
}

// lookOf reads an access event that a host recorded.
func lookOf(row store.Row) (Look, bool) {
	var r audit.Record
	if json.Unmarshal(row.Body, &r) != nil || r.Access == nil || r.Observer != audit.Host {
		return Look{}, false
	}
	return Look{Run: row.Run, Seq: row.Seq, Time: row.Time, Access: *r.Access}, true
}
