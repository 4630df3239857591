package hostlog

import (
	"net/http"
	"strings"
	"testing"
)

// TestOtherKey: the error of a witness that does not know the host's new key states the remedy.
func TestOtherKey(t *testing.T) {
	if text := (Refusal{Status: http.StatusForbidden}).reason(1).Error(); !strings.Contains(text, "keys/host.pub") || !strings.Contains(text, "custody witness serve --log OLD.pub --log NEW.pub") {
		t.Error(text)
	}
}
