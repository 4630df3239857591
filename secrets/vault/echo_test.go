package vault

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// echo stands where Vault should, and gives every caller the same answer.
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
