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

// accesses lists who looked at records of the asker's tenant, or tried to, newest first. The logs
// are those of hosts; what they have about other tenants is passed over.
func (s *Server) accesses(w http.ResponseWriter, r *request) error {
	h := hunt{looks: true}
	h.Kinds = []audit.Kind{audit.KindAccess}
	h.accept = func(row store.Row) bool {
		look, ok := lookOf(row)
		return ok && look.Tenant == r.who.Tenant
	}
	var err error
	if h.From, h.To, err = r.dates(); err == nil {
		err = s.begin(r, &h)
	}
	if err != nil {
		return err
	}
	if h.From.IsZero() {
		h.From = time.Unix(0, 0).UTC()
	}
	if err := s.hunt(r, &h); err != nil {
		return err
	}
	var page struct {
		Looks   []Look `json:"access"`
		Partial bool   `json:"partial"`
		Next    string `json:"next,omitempty"`
	}
	page.Looks, page.Partial = []Look{}, h.partial
	for i, row := range h.rows {
		look, _ := lookOf(row)
		look.Mark = h.marks[i]
		page.Looks = append(page.Looks, look)
	}
	if h.next != nil {
		page.Next = s.cursors.make(r.scope(), h.next)
	}
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
