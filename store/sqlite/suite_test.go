package sqlite

import (
	"testing"

	"github.com/custody-project/custody/store"
	"github.com/custody-project/custody/store/storetest"
)

func TestSuite(t *testing.T) {
	storetest.Suite(t, func(t *testing.T) store.Store { return newStore(t) })
}
