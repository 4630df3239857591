package replay

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
)

// opened adds that a process opened a file with the credential key, at a time of the guest's clock that is lag before the arrival.
func (r *script) opened(proc string, pid int, path audit.Text, lag time.Duration) uint64 {
	seq := r.add(audit.Guest, audit.KindFile, audit.Event{File: &audit.File{Proc: proc, PID: pid, Op: audit.FileRead, Path: path, Secrets: []string{"key"}}})
	ev := &r.events[seq-1]
	const offset = 5 * time.Second
	ev.Guest = &audit.GuestTime{Time: ev.Time.Add(offset - lag), OffsetNS: int64(offset)}
	return seq
}

// TestOpenings: a credential has the processes that opened its files, how often, and which openings were after its end.
func TestOpenings(t *testing.T) {
	const file, vars = "/run/secrets/key", "/run/secrets/env"
	r := script{}
	r.secret(audit.Secret{Name: "key", Op: audit.SecretMint, Broker: "local", TTLNS: int64(time.Minute)})
	r.exec("p1", "", "cat", file)
	first := r.opened("p1", 2, file, 0)
	r.opened("p1", 2, vars, 0)
	r.opened("p2", 3, file, 0) // without an exec
	r.secret(audit.Secret{Name: "key", Op: audit.SecretRevoke, Broker: "local"})
	r.opened("p1", 2, file, time.Hour) // happened before the end, arrived after
	r.opened("p2", 3, file, 0)
	s := r.story(t)
	creds := s.Credentials().All()
	if len(creds) != 1 {
		t.Fatalf("credentials: %s", toJSON(t, creds))
	}
	c := creds[0]
	if c.Opened != 5 || c.OpenedAfter != 1 || len(c.Readers) != 2 {
		t.Fatalf("openings: %s", toJSON(t, c))
	}
	cat, other := c.Readers[0], c.Readers[1]
	if cat.By.String() != "cat[2]" || cat.Exe != "/bin/cat" || len(cat.Argv) != 2 || cat.Times != 3 || cat.After != 0 || cat.Seq != first || len(cat.Paths) != 2 || !cat.First.Before(cat.Last) {
		t.Errorf("cat: %s", toJSON(t, cat))
	}
	if other.By.PID != 3 || other.Exe != "" || other.Times != 2 || other.After != 1 {
		t.Errorf("the process without an exec: %s", toJSON(t, other))
	}
	held := s.StateAt(r.events[4].Time, 0).Secrets
	if len(held) != 1 || held[0].Opened != 3 || len(held[0].OpenedBy) != 2 {
		t.Errorf("held: %s", toJSON(t, held))
	}
}

// TestOpeningsBounded: the list of processes has an end, the count does not.
func TestOpeningsBounded(t *testing.T) {
	r := script{}
	r.secret(audit.Secret{Name: "key", Op: audit.SecretMint, Broker: "local", TTLNS: int64(time.Hour)})
	const all = maxReaders + 23
	for i := range all {
		r.opened(fmt.Sprintf("p%d", i), 10+i, "/run/secrets/key", 0)
	}
	s := r.story(t)
	if c := s.Credentials().All()[0]; len(c.Readers) != maxReaders || c.Opened != all {
		t.Errorf("%d readers, %d openings", len(c.Readers), c.Opened)
	}
	held := s.StateAt(r.events[len(r.events)-1].Time, 0).Secrets[0]
	if len(held.OpenedBy) != maxOpenedBy || held.Opened != all || !strings.HasSuffix(actors(held.OpenedBy), "…") {
		t.Errorf("held: %s", toJSON(t, held))
	}
}
