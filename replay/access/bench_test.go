package access_test

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/redact"
	"github.com/custody-project/custody/replay/access"
)

// BenchmarkGuard is what the gate adds to a request, by each credential, without the disk; and with the
// host's own access log, whose fsync is nearly all of it.
func BenchmarkGuard(b *testing.B) {
	fast := access.Rate{PerSecond: 1e6, Burst: 1e6}
	iss := startIssuer(b)
	oidc := &access.OIDC{Issuer: iss.Issuer, ClientID: "custody", Grants: map[string]access.Grants{"custody-auditors": {{Tenant: "acme", Role: access.Auditor}}}}
	h, err := host.Open(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	log := h.AccessLog(redact.New([]byte("0123456789abcdef0123456789abcdef")), "test")
	defer log.Close()
	for name, to := range map[string]access.Recorder{"": nowhere{}, "-recorded": log} {
		tokens, err := access.OpenTokens(filepath.Join(b.TempDir(), "serve"))
		if err != nil {
			b.Fatal(err)
		}
		text, err := tokens.New(b.Context(), "ann", "acme", access.Viewer, 0)
		if err != nil {
			b.Fatal(err)
		}
		g, err := access.New(access.Options{Config: access.Config{Rate: fast, OIDC: oidc}, Tokens: tokens, Recorder: to})
		if err != nil {
			b.Fatal(err)
		}
		defer g.Close()
		guarded := g.Guard("GET /x", access.Rule{Role: access.Viewer, Action: "view"}, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		for via, header := range map[string]string{"token": "Bearer " + text, "oidc": "Bearer " + iss.sign(b, nil, nil), "forged": "Bearer cst_" + text[5:] + "A"} {
			b.Run(via+name, func(b *testing.B) {
				r := httptest.NewRequest("GET", "/x", nil)
				r.Host = "localhost"
				r.Header.Set("Authorization", header)
				for b.Loop() {
					w := httptest.NewRecorder()
					guarded.ServeHTTP(w, r)
					if (w.Code == 200) == (via == "forged") {
						b.Fatal(w.Code, w.Body)
					}
				}
			})
		}
	}
}
