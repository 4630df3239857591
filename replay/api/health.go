package api

import (
	"context"
	_ "embed"
	"net/http"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/custody-project/custody/store"
)

// Health is the state of the server. It is public.
type Health struct {
	Store string `json:"store"` // ok or away
	OIDC  bool   `json:"oidc"`  // a browser can log in with the OIDC issuer
}

// healthFor is how long the store has to answer.
const healthFor = 2 * time.Second

func (s *Server) health(w http.ResponseWriter, r *request) error {
	ctx, cancel := context.WithTimeout(r.Context(), healthFor)
	defer cancel()
	h := Health{Store: "ok", OIDC: s.opt.OIDC}
	if _, err := s.source.Runs(ctx, store.Filter{Limit: 1}); err != nil {
		h.Store = "away"
	}
	return answer(w, h)
}

//go:embed openapi.yaml
var document []byte

// documentJSON is the OpenAPI document as it is served.
func documentJSON() ([]byte, error) { return yaml.YAMLToJSON(document) }

func (s *Server) openapi(w http.ResponseWriter, _ *request) error {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(s.document) // no one is left to tell
	return nil
}
