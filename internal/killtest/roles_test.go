package killtest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/ship"
	"github.com/custody-project/custody/store"
	"github.com/custody-project/custody/store/clickhouse"
	"github.com/custody-project/custody/store/sqlite"
)

// The test binary is each of the processes that are killed.
const roleEnv = "CUSTODY_TORTURE_ROLE"

func TestMain(m *testing.M) {
	roles := map[string]func(context.Context) error{"nats": natsRole, "ingest": ingestRole, "host": hostRole}
	role := os.Getenv(roleEnv)
	if role == "" {
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM)
	defer stop()
	go func() { // nothing outlives the test
		io.Copy(io.Discard, os.Stdin)
		os.Exit(3)
	}()
	if err := roles[role](ctx); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", role, err)
		os.Exit(1)
	}
}

// natsRole is nats-server as its own main function starts it.
func natsRole(ctx context.Context) error {
	options, err := server.ProcessConfigFile(os.Getenv("CUSTODY_TORTURE_NATS"))
	if err != nil {
		return err
	}
	options.NoSigs = true
	s, err := server.NewServer(options)
	if err != nil {
		return err
	}
	s.ConfigureLogger()
	if err := server.Run(s); err != nil {
		return err
	}
	<-ctx.Done()
	s.Shutdown()
	s.WaitForShutdown()
	return nil
}

func natsConfig() ship.Config {
	return ship.Config{
		URL: os.Getenv("CUSTODY_TORTURE_URL"), Monitor: os.Getenv("CUSTODY_TORTURE_MONITOR"), Tenant: "acme", Host: hostName,
		Warn: func(s string) { fmt.Fprintln(os.Stderr, "warning:", s) },
	}
}

// ingestRole is an ingester into the store that the test names.
func ingestRole(ctx context.Context) error {
	st, err := awaitStore(ctx, os.Getenv("CUSTODY_TORTURE_STORE"))
	if err != nil {
		return err
	}
	err = ship.Ingest(ctx, natsConfig(), st, ship.IngestOptions{
		Refused: func(r ship.Refused) { fmt.Printf("refused %s %v\n", r.ID, r.Err) },
	})
	return errors.Join(err, st.Close())
}

// openStore opens ClickHouse by a DSN, or SQLite by a path.
func openStore(ctx context.Context, where string) (store.Store, error) {
	if strings.HasPrefix(where, "http://") {
		return clickhouse.Open(ctx, where, clickhouse.Options{})
	}
	return sqlite.Open(ctx, where)
}

// awaitStore waits for a server that was killed.
func awaitStore(ctx context.Context, where string) (store.Store, error) {
	for {
		st, err := openStore(ctx, where)
		if err == nil {
			return st, nil
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return nil, err
		}
	}
}

// lines calls f for each line of r until its end.
func lines(r io.Reader, f func(string)) {
	s := bufio.NewScanner(r)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		f(s.Text())
	}
}
