package clickhouse

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/store"
	"github.com/custody-project/custody/store/clickhouse/clickhousetest"
	"github.com/custody-project/custody/store/storetest"
)

// quick makes the feed settle in the time of a test.
var quick = Options{Settle: time.Second}

func open(t testing.TB, dsn string, o Options) *Store {
	t.Helper()
	s, err := Open(t.Context(), dsn, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestSuite(t *testing.T) {
	t.Parallel()
	server := clickhousetest.Start(t)
	storetest.Suite(t, func(t *testing.T) store.Store { return open(t, server.Fresh(), quick) })
}

// TestSuiteElsewhere runs the suite on the server that CUSTODY_TEST_CLICKHOUSE names, in
// databases of its own beside the one in the DSN.
func TestSuiteElsewhere(t *testing.T) {
	dsn := os.Getenv("CUSTODY_TEST_CLICKHOUSE")
	if dsn == "" {
		t.Skip("CUSTODY_TEST_CLICKHOUSE names no server; TestSuite has its own")
	}
	storetest.Suite(t, func(t *testing.T) store.Store {
		o, err := parse(dsn, nil)
		if err != nil {
			t.Fatal(err)
		}
		database := o.Auth.Database + "_custody_test_" + strings.ToLower(time.Now().Format("20060102t150405000000"))
		s := open(t, strings.Replace(dsn, "/"+o.Auth.Database, "/"+database, 1), quick)
		t.Cleanup(func() {
			if err := s.db.exec(t.Context(), "DROP DATABASE "+name(database)+" SYNC"); err != nil {
				t.Error(err)
			}
		})
		return s
	})
}
