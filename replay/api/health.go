package api

import (
	"context"
	"net/http"
	"time"

	"github.com/custody-project/custody/audit/store"
)

// Health is how the server is. It is told to anybody.
type Health struct {
	Store string `json:"store"` // ok or away
}

// healthFor is how long the store has to answer.
const healthFor = 2 * time.Second

func (s *Server) health(w http.ResponseWriter, r *request) error {
	ctx, cancel := context.WithTimeout(r.Context(), healthFor)
	defer cancel()
	h := Health{Store: "ok"}
	if _, err := s.source.Runs(ctx, store.Filter{Limit: 1}); err != nil {
		h.Store = "away"
	}
	return answer(w, h)
}

func (s *Server) openapi(w http.ResponseWriter, _ *request) error {
	return answer(w, map[string]any{})
}
