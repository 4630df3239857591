package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/audit/witness"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/store/storetest"
)

// witnessServer is a witness on loopback for the log of a host; stop ends it.
func witnessServer(t *testing.T, dir, address, hostKey string) (vkey, at string, stop func()) {
	t.Helper()
	vkey, err := witness.Generate(dir, "witness.example")
	if err != nil && !errors.Is(err, os.ErrExist) {
		t.Fatal(err)
	}
	signer, verifier, err := witness.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	log, err := note.NewVerifier(hostKey)
	if err != nil {
		t.Fatal(err)
	}
	server, err := witness.New(witness.Config{Dir: dir, Signer: signer, Verifier: verifier, Logs: []note.Verifier{log}, PerSecond: 1e6})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Serve(ctx, listener, nil) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := errors.Join(<-done, server.Close()); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(stop)
	return vkey, listener.Addr().String(), stop
}

// fsck returns the command's exit code and standard output.
func (r *recorded) fsck(c fsckCmd) (int, string) {
	r.Helper()
	var out strings.Builder
	a := newApp(r.Context(), nil, &out, &out)
	return a.code(c.Run(a)), out.String()
}

// TestFsckRolledBack: runs, log and store that were put back together to an older state are found by a checkpoint that was
// kept elsewhere, and by a witness, but not by any check with only the host's files.
func TestFsckRolledBack(t *testing.T) {
	t.Setenv("CUSTODY_HOME", t.TempDir())
	h, err := host.Open(os.Getenv("CUSTODY_HOME"))
	if err != nil {
		t.Fatal(err)
	}
	hostKey, err := h.Keys().Public()
	if err != nil {
		t.Fatal(err)
	}
	vkey, address, stop := witnessServer(t, t.TempDir(), "127.0.0.1:0", hostKey)
	config := fmt.Sprintf("version: 1\nlog: {wait: 5s, witnesses: [{key: %q, url: %q}]}\n", vkey, "http://"+address)
	if err := os.WriteFile(filepath.Join(h.Dir, host.ConfigFile), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	if h, err = host.Open(h.Dir); err != nil {
		t.Fatal(err)
	}
	r := &recorded{t, h}
	record := func(after time.Duration) {
		t.Helper()
		run := r.begin(host.NewRunID(storetest.Start().Add(after)))
		if record, stored := run.Close(t.Context(), wal.Sealed); record != nil || stored != nil {
			t.Fatal(record, stored)
		}
		if err := h.Shipping().Ship(t.Context(), false, func(text string) { t.Log(text) }); err != nil {
			t.Fatal(err)
		}
	}
	checkpoint := func(name string) string {
		t.Helper()
		data, err := os.ReadFile(filepath.Join(h.Dir, "log", "checkpoint"))
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	outcome := func(name string, c fsckCmd, code int, says ...string) {
		t.Helper()
		got, text := r.fsck(c)
		if got != code {
			t.Errorf("%s: fsck exits %d, want %d: %s", name, got, code, text)
		}
		for _, want := range says {
			if !strings.Contains(text, want) {
				t.Errorf("%s: fsck does not say %q: %s", name, want, text)
			}
		}
	}

	record(0)
	first := checkpoint("first")
	old := filepath.Join(t.TempDir(), "old")
	copyStates(t, h.Dir, old)
	record(time.Minute)
	second := checkpoint("second")

	policy := filepath.Join(t.TempDir(), "policy")
	if err := os.WriteFile(policy, []byte("witness w "+vkey+" http://"+address+"/\nquorum w\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, since := range []string{"", first, second} {
		outcome("whole", fsckCmd{Since: since}, 0)
		for _, name := range []string{"all", vkey, policy} {
			outcome("whole", fsckCmd{Since: since, Witness: []string{name}, Quorum: 1}, 0)
		}
	}

	copyStates(t, old, h.Dir)
	outcome("put back", fsckCmd{}, 0)
	outcome("put back", fsckCmd{Since: first}, 0)
	outcome("put back", fsckCmd{Since: second}, 1, "log-rolled-back: compared with the given checkpoint: ", "hint: this host has lost newer data")
	outcome("put back, JSON", fsckCmd{Since: second, JSON: true}, 1, `"name":"log-rolled-back"`, `"hint":"this host has lost newer data`)
	for _, name := range []string{"all", vkey, policy} {
		outcome("put back", fsckCmd{Witness: []string{name}}, 1, "log-rolled-back: compared with witness witness.example at http://"+address, "hint: this host has lost newer data")
	}
	outcome("an unknown witness", fsckCmd{Witness: []string{"witness.other+12345678+AAAA"}}, 2, "is not in log.witnesses")
	outcome("no checkpoint", fsckCmd{Since: policy}, 1, "hint: use a checkpoint of this host's log")

	// The log continues from there without the witness: it has two histories.
	stop()
	outcome("put back, witness away", fsckCmd{Witness: []string{"all"}}, 2, "too few witnesses have answered")
	if err := os.WriteFile(filepath.Join(h.Dir, host.ConfigFile), []byte("version: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if h, err = host.Open(h.Dir); err != nil {
		t.Fatal(err)
	}
	r.home = h
	for i := range 3 {
		record(time.Duration(2+i) * time.Minute)
	}
	outcome("another history", fsckCmd{}, 0)
	outcome("another history", fsckCmd{Since: first}, 0)
	outcome("another history", fsckCmd{Since: second}, 1, "log-forked: compared with the given checkpoint")
}

// copyStates replaces all files that grow in one home by those of another.
func copyStates(t *testing.T, from, to string) {
	t.Helper()
	for _, name := range []string{"runs", "log", "log.checkpoints", "custody.db", "custody.db-wal", "custody.db-shm"} {
		if err := os.RemoveAll(filepath.Join(to, name)); err != nil {
			t.Fatal(err)
		}
		copyTree(t, filepath.Join(from, name), filepath.Join(to, name))
	}
}
