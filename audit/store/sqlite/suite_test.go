package sqlite

import (
	"testing"

	"github.com/custody-project/custody/audit/store"
	"github.com/custody-project/custody/audit/store/storetest"
)

func TestSuite(t *testing.T) {
	storetest.Suite(t, func(t *testing.T) store.Store { return newStore(t) })
}
