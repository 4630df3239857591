package natsio

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/custody-project/custody/export"
	"github.com/custody-project/custody/export/exporttest"
	"github.com/custody-project/custody/export/sink/peer"
)

// start runs a real server in this process, with JetStream, a password and, with certs, TLS.
func start(t *testing.T, certs *exporttest.Certs) *server.Server {
	t.Helper()
	o := &server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true,
		Username: "siem", Password: "s3cret", MaxPayload: 64 << 10}
	if certs != nil {
		config, err := server.GenTLSConfig(&server.TLSConfigOpts{CertFile: certs.Cert, KeyFile: certs.Key, CaFile: certs.CA, Verify: true})
		if err != nil {
			t.Fatal(err)
		}
		o.TLSConfig, o.TLSTimeout = config, 5
	}
	s, err := server.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("the server does not start")
	}
	return s
}

// stream creates the stream, and returns it.
func stream(t *testing.T, s *server.Server) jetstream.Stream {
	t.Helper()
	conn, err := nats.Connect("", nats.InProcessServer(s), nats.UserInfo("siem", "s3cret"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	st, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "SIEM", Subjects: []string{"custody.siem.>"}, Duplicates: time.Minute,
		Storage: jetstream.FileStorage})
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// got returns the ids of the stream's messages, in order.
func got(t *testing.T, st jetstream.Stream) (ids []string) {
	t.Helper()
	info, err := st.Info(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for seq := info.State.FirstSeq; seq <= info.State.LastSeq && info.State.Msgs > 0; seq++ {
		m, err := st.GetMsg(context.Background(), seq)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, m.Header.Get(nats.MsgIdHdr))
	}
	return ids
}

func count(ids []string) map[string]int {
	n := map[string]int{}
	for _, id := range ids {
		n[id]++
	}
	return n
}

func options(t *testing.T, s *server.Server) Options {
	t.Helper()
	path := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(path, []byte("s3cret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return Options{URL: s.ClientURL(), Subject: "custody.siem.{tenant}.{run}.{kind}", User: "siem", Password: peer.Secret{File: path}}
}

func open(t *testing.T, o Options) *Sink {
	t.Helper()
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// TestFaults: the stream has each event exactly once, since it drops repeats by id.
func TestFaults(t *testing.T) {
	s := start(t, nil)
	st := stream(t, s)
	o := options(t, s)
	o.Timeout = 300 * time.Millisecond
	exporttest.Faults(t, s.Addr().String(), func(addr string) export.Sink {
		o.URL = "nats://" + addr
		return open(t, o)
	}, func() map[string]int { return count(got(t, st)) })
	for id, n := range count(got(t, st)) {
		if n != 1 {
			t.Errorf("the stream has %s %d times", id, n)
		}
	}
}

// TestSubjectsAndOrder: events keep their order, repeats are dropped, and subjects contain the names of their parts.
func TestSubjectsAndOrder(t *testing.T) {
	s := start(t, nil)
	st := stream(t, s)
	sink := open(t, options(t, s))
	items := exporttest.Items("r-1", 500)
	for range 2 { // the second time all are repeats
		if err := sink.Send(t.Context(), items); err != nil {
			t.Fatal(err)
		}
	}
	ids := got(t, st)
	if len(ids) != len(items) {
		t.Fatalf("%d messages", len(ids))
	}
	for i, id := range ids {
		if id != items[i].ID {
			t.Fatalf("message %d is %s", i, id)
		}
	}
	m, err := st.GetMsg(t.Context(), 3)
	if err != nil || m.Subject != "custody.siem.acme.r-1.output" || string(m.Data) != string(items[2].Data) {
		t.Errorf("%+v, %v", m, err)
	}
}

func TestTooLargeAndNoStream(t *testing.T) {
	s := start(t, nil)
	o := options(t, s)
	sink := open(t, o)
	items := exporttest.Items("r-1", 3)
	if err := sink.Send(t.Context(), items); err == nil || !strings.Contains(err.Error(), "no stream has the subject") {
		t.Errorf("without a stream: %v", err)
	}
	st := stream(t, s)
	items[1].Data = []byte(strings.Repeat("x", 70<<10))
	var each export.Outcomes
	var refused *export.Refused
	if err := sink.Send(t.Context(), items); !errors.As(err, &each) || each[0] != nil || !errors.As(each[1], &refused) || each[2] != nil {
		t.Errorf("one too large: %v", err)
	}
	if n := len(got(t, st)); n != 2 {
		t.Errorf("%d messages", n)
	}
}

// TestPlain: a plain subject has a warning, and every subscriber gets the events.
func TestPlain(t *testing.T) {
	s := start(t, nil)
	o := options(t, s)
	o.Plain, o.Subject = true, "custody.plain"
	conn, err := nats.Connect("", nats.InProcessServer(s), nats.UserInfo("siem", "s3cret"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	sub, err := conn.SubscribeSync("custody.plain")
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
	sink := open(t, o)
	items := exporttest.Items("r-1", 20)
	if err := sink.Send(t.Context(), items); err != nil || sink.Warning() == "" {
		t.Fatal(err, sink.Warning())
	}
	for _, i := range items {
		m, err := sub.NextMsg(5 * time.Second)
		if err != nil || m.Header.Get(nats.MsgIdHdr) != i.ID {
			t.Fatal(m, err)
		}
	}
}

func TestTLSAndPassword(t *testing.T) {
	certs := exporttest.NewCerts(t)
	s := start(t, &certs)
	st := stream(t, s)
	o := options(t, s)
	o.URL = "tls://" + s.Addr().String()
	for name, change := range map[string]func(*Options){
		"another authority": func(o *Options) { o.TLS = exporttest.NewCerts(t).Client(t) },
		"no password":       func(o *Options) { o.User = "" },
		"":                  func(*Options) {},
	} {
		o := o
		o.TLS = certs.Client(t)
		change(&o)
		if err := open(t, o).Send(t.Context(), exporttest.Items("r-1", 3)); (err == nil) != (name == "") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if len(got(t, st)) != 3 {
		t.Error(got(t, st))
	}
}
