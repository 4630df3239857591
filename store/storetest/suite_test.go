package storetest

import (
	"testing"

	"github.com/custody-project/custody/store"
)

// TestOracle: the oracle passes the suite.
func TestOracle(t *testing.T) {
	Suite(t, func(*testing.T) store.Store { return &Oracle{} })
}
