package secrets

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"sync"

	"github.com/custody-project/custody/redact"
)

// placeholders makes the values that a step has in place of header secrets, and recognizes them in any encoding of the
// redactor, for the rest of the run:
//
//	custody-NAME-RRRRRRRRRRRRRRRRLLLLLLLLLLLLLLLL
//	              |               + of the lease: the gateway accepts no other
//	              + of the run and the secret: its identifier
//
// They are not in the run's redactor: a placeholder is not secret, and may be printed.
type placeholders struct {
	known *redact.Redactor

	mu    sync.Mutex        // guards stems
	stems map[string]string // by secret
}

func newPlaceholders() *placeholders {
	return &placeholders{known: redact.New([]byte(rand.Text())), stems: map[string]string{}}
}

// make returns a new placeholder for a secret.
func (p *placeholders) make(secret string) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	stem, ok := p.stems[secret]
	if !ok {
		stem = "custody-" + secret + "-" + digits()
		if err := p.known.Add(secret, []byte(stem)); err != nil {
			return "", fmt.Errorf("placeholder: %w", err)
		}
		p.stems[secret] = stem
	}
	return stem + digits(), nil
}

func digits() string {
	var b [8]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}
