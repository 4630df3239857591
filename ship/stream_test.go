package ship

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

func TestNoJetStream(t *testing.T) {
	wantHint(t, startNATS(t, "", "").config(), "jetstream")
	seed, public := nkey(t)
	c := startNATS(t, alwaysSync, fmt.Sprintf("accounts { CUSTODY { users: [ { nkey: %s } ] } }", public)).config()
	c.NKey = seed
	wantHint(t, c, "account")
}

func TestMaxPayload(t *testing.T) {
	s := startNATS(t, alwaysSync, "max_payload: 1MB")
	wantHint(t, s.config(), "max_payload: 16MB")
}

// TestUnfitStreams: a stream that can lose segments is not used.
func TestUnfitStreams(t *testing.T) {
	s := startNATS(t, alwaysSync, "")
	js, err := jetstream.New(s.conn())
	if err != nil {
		t.Fatal(err)
	}
	for words, change := range map[string]func(*jetstream.StreamConfig){
		"memory":       func(c *jetstream.StreamConfig) { c.Storage = jetstream.MemoryStorage },
		"work queue":   func(c *jetstream.StreamConfig) { c.Retention = jetstream.LimitsPolicy },
		"interest":     nil,
		"oldest":       func(c *jetstream.StreamConfig) { c.Discard = jetstream.DiscardOld },
		"are old":      func(c *jetstream.StreamConfig) { c.MaxAge, c.Duplicates = time.Hour, 0 },
		"of a run":     func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = 10 },
		"acknowledge":  func(c *jetstream.StreamConfig) { c.NoAck = true },
		"at most":      func(c *jetstream.StreamConfig) { c.MaxMsgSize = 1 << 20 },
		"not accept":   func(c *jetstream.StreamConfig) { c.Subjects = []string{segmentRoot + "acme.*.*"} },
		"has written":  func(c *jetstream.StreamConfig) { c.PersistMode = jetstream.AsyncPersistMode },
		"can empty it": func(c *jetstream.StreamConfig) { c.AllowRollup = true },
	} {
		t.Run(words, func(t *testing.T) {
			c := (&link{config: Config{StreamBytes: 1 << 20, Replicas: 1}}).streamConfig()
			if change == nil {
				c.Retention, words = jetstream.InterestPolicy, "work queue"
			} else {
				change(&c)
			}
			_, err := js.CreateStream(t.Context(), c)
			for end := time.Now().Add(10 * time.Second); err != nil && time.Now().Before(end); { // the server is still removing the previous one
				time.Sleep(50 * time.Millisecond)
				_, err = js.CreateStream(t.Context(), c)
			}
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := js.DeleteStream(t.Context(), streamName); err != nil {
					t.Error(err)
				}
			}()
			wantHint(t, s.config(), words)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			if err := Ingest(ctx, s.config(), nil, IngestOptions{}); !errors.Is(err, ErrStream) {
				t.Errorf("Ingest: %v", err)
			}
		})
	}
}

// TestUnfitConsumer: a consumer that can lose segments is not used.
func TestUnfitConsumer(t *testing.T) {
	s := startNATS(t, alwaysSync, "")
	dial(t, s.config())
	js, err := jetstream.New(s.conn())
	if err != nil {
		t.Fatal(err)
	}
	c := consumerConfig(ackWait)
	c.MaxDeliver = 3
	if _, err := js.CreateConsumer(t.Context(), streamName, c); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := Ingest(ctx, s.config(), nil, IngestOptions{}); !errors.Is(err, ErrStream) {
		t.Errorf("got %v", err)
	}
}

// TestSyncWarnings: results of the monitoring endpoints are passed to Warn.
func TestSyncWarnings(t *testing.T) {
	lazy, always, none := startNATS(t, `sync_interval: "2m"`, ""), startNATS(t, alwaysSync, ""), startNATS(t, "", "")
	for name, test := range map[string]struct{ monitor, words string }{
		"always":     {always.monitor(), ""},
		"lazy":       {lazy.monitor(), "every 2m0s only"},
		"not set":    {"", "monitoring endpoints"},
		"nobody":     {"http://" + always.addr + ":8223", "cannot be checked"},
		"a stranger": {lazy.url(), "is not a URL"},
		"another":    {none.monitor(), "not of the NATS server"},
		"no server":  {always.monitor() + "/connz", "answers 404"},
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			said := ""
			s := always
			if name == "lazy" {
				s = lazy
			}
			c := s.config()
			c.Monitor = test.monitor
			c.Warn = func(w string) {
				mu.Lock()
				defer mu.Unlock()
				said += w
			}
			r := dial(t, c)
			r.helpers.Wait()
			mu.Lock()
			defer mu.Unlock()
			if test.words == "" && said != "" || !strings.Contains(said, test.words) {
				t.Errorf("warned of %q, want %q", said, test.words)
			}
		})
	}
}
