package vault

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// echo is a server in the place of Vault that sends the same response to every request.
func echo(t testing.TB, code int, body string) (address string) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "http://127.0.0.1:1/elsewhere")
		w.WriteHeader(code)
		w.Write([]byte(body))
	}))
	t.Cleanup(s.Close)
	return s.URL
}
