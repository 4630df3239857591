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
	// Sandboxes reports that the server can have sandboxes.
	Sandboxes bool `json:"sandboxes"`
}

// healthFor is the time limit for the store.
const healthFor = 2 * time.Second

// aboutHandler answers requests about the server itself.
type aboutHandler struct {
	source   Source
	oidc     bool
	document []byte // the OpenAPI document, as JSON

	sandboxes bool
}

func (a *aboutHandler) health(w http.ResponseWriter, r *request) error {
	ctx, cancel := context.WithTimeout(r.Context(), healthFor)
	defer cancel()
	h := Health{Store: "ok", OIDC: a.oidc, Sandboxes: a.sandboxes}
	if _, err := a.source.Runs(ctx, store.Filter{Limit: 1}); err != nil {
		h.Store = "away"
	}
	return answer(w, h)
}

//go:embed openapi.yaml
var document []byte

// documentJSON is the OpenAPI document as it is served.
func documentJSON() ([]byte, error) { return yaml.YAMLToJSON(document) }

func (a *aboutHandler) openapi(w http.ResponseWriter, _ *request) error {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(a.document) // an error: the client has gone
	return nil
}
