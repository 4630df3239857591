package secrets

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"sync"

	"github.com/custody-project/custody/redact"
)

// placeholders makes what a step holds in place of a header secret, and knows again what it
// made, in any encoding of the redactor's and for the rest of the run:
//
//	custody-NAME-RRRRRRRRRRRRRRRRLLLLLLLLLLLLLLLL
//	             |               + of the lease: the gateway takes no other
//	             + of the run and the secret: its identifier
//
// They are not in the run's redactor: one may be printed, and gives nothing away.
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
