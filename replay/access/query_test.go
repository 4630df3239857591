package access_test

import (
	"testing"

	"github.com/custody-project/custody/replay/access"
)

// TestRecordedQuery: a query stands in the record decoded, so that the redactor sees what was asked.
func TestRecordedQuery(t *testing.T) {
	s := newSite(t, access.Config{})
	auth := "Authorization: Bearer " + s.token(t, "ann", "acme", access.Viewer)
	for raw, want := range map[string]string{
		"at=%2B4s":                       "at=+4s",
		"q=%41KIA%49OSFODNN":             "q=AKIAIOSFODNN",
		"q=-----BEGIN+RSA+PRIVATE":       "q=-----BEGIN RSA PRIVATE",
		"q=a%26limit%3D5&limit=1":        "q=a%26limit=5&limit=1",
		"q=50%25":                        "q=50%25",
		"q=%63st_%41AAAAAAAAAAAAAAAAAAA": "q=cst_...",
		"a&&b=":                          "a&&b=",
	} {
		s.do(s.request("GET", "/api/v1/viewer/r-1?"+raw, "", auth))
		if got := string(s.log.last(t).Query); got != want {
			t.Errorf("%s is recorded as %q, want %q", raw, got, want)
		}
	}
}
