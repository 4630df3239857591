package ship

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// refusedStream stores the segments that no store can accept, for inspection. New ones replace old ones, and no tenant
// can displace those of another.
const (
	refusedStream    = "CUSTODY_REFUSED"
	refusedBytes     = 1 << 30
	refusedPerTenant = 64
	refusedAge       = 30 * 24 * time.Hour
)

// Error codes of the JetStream API without a name in nats.go.
const (
	codeNoPeers       jetstream.ErrorCode = 10005
	codeNotAvailable  jetstream.ErrorCode = 10008
	codeNoStorage     jetstream.ErrorCode = 10047
	codeOtherStream   jetstream.ErrorCode = 10060
	codeNotClustered  jetstream.ErrorCode = 10074
	codeStoreFailed   jetstream.ErrorCode = 10077 // full, with DiscardNew
	codeAccountLimits jetstream.ErrorCode = 10002
)

func (l *link) streamConfig() jetstream.StreamConfig {
	size := l.config.StreamBytes
	if size == 0 {
		size = DefaultStreamBytes
	}
	return jetstream.StreamConfig{
		Name:       streamName,
		Subjects:   []string{segmentsFrom},
		Storage:    jetstream.FileStorage,
		Retention:  jetstream.WorkQueuePolicy,
		Discard:    jetstream.DiscardNew, // a full stream refuses messages and drops none
		MaxBytes:   size,
		MaxMsgSize: MaxMessage,
		Duplicates: duplicates,
		Replicas:   l.replicas(),
	}
}

func refusedConfig(replicas int) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:              refusedStream,
		Subjects:          []string{refusedRoot + "*"},
		Storage:           jetstream.FileStorage,
		Retention:         jetstream.LimitsPolicy,
		Discard:           jetstream.DiscardOld,
		MaxBytes:          refusedBytes,
		MaxMsgsPerSubject: refusedPerTenant,
		MaxAge:            refusedAge,
		MaxMsgSize:        MaxMessage,
		Replicas:          replicas,
	}
}

func (l *link) replicas() int {
	switch {
	case l.config.Replicas > 0:
		return l.config.Replicas
	case l.conn.ConnectedClusterName() != "":
		return 3
	}
	return 1
}

// prepare checks the server and the stream, and creates the stream if it does not exist. It waits
// for starting servers until ctx ends; any other error is permanent.
func (l *link) prepare(ctx context.Context) error {
	if n := l.conn.MaxPayload(); n < MaxMessage {
		return hinted(fmt.Errorf("the NATS server accepts messages of up to %d bytes, a segment can need %d", n, MaxMessage),
			"set max_payload: 16MB in the configuration of each server")
	}
	begin := time.Now()
	return l.persist(ctx, func() error {
		info, err := l.stream(ctx, l.streamConfig())
		switch {
		case err == nil:
			return l.check(info.Config)
		case errors.Is(err, nats.ErrNoResponders) && time.Since(begin) > patienceForJetStream:
			return explainStream(streamName, jetstream.ErrJetStreamNotEnabled)
		}
		return err
	})
}

// patienceForJetStream is how long JetStream may not answer before it counts as disabled: all servers that have
// it may be unavailable for a while.
const patienceForJetStream = 2 * time.Second

// persist repeats f while its error is transient.
func (l *link) persist(ctx context.Context, f func() error) error {
	for delay := firstReconnect; ; delay = min(2*delay, lastAsk) {
		err := f()
		var final *Error
		if err == nil || errors.As(err, &final) {
			return err
		}
		l.probe(err)
		if l.rest(ctx, jitter(delay)); ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
	}
}

// stream returns the state of a stream, created if it does not exist.
func (l *link) stream(ctx context.Context, want jetstream.StreamConfig) (*jetstream.StreamInfo, error) {
	var info *jetstream.StreamInfo
	look := func(ctx context.Context) error {
		s, err := l.js.Stream(ctx, want.Name)
		if err == nil {
			info = s.CachedInfo()
		}
		return err
	}
	err := l.api(ctx, "$JS.API.STREAM.INFO."+want.Name, look)
	if !errors.Is(err, jetstream.ErrStreamNotFound) {
		return info, explainStream(want.Name, err)
	}
	err = l.api(ctx, "$JS.API.STREAM.CREATE."+want.Name, func(ctx context.Context) error {
		s, err := l.js.CreateStream(ctx, want)
		if err == nil {
			info = s.CachedInfo()
		}
		return err
	})
	switch {
	case errors.Is(err, ErrDenied):
		return nil, hinted(fmt.Errorf("%w: it is missing, and this user may not create it: %w", ErrStream, err),
			"start custody ingest once, whose user may create it, or allow this one to publish \"$JS.API.STREAM.CREATE.%s\"", want.Name)
	case errors.Is(err, jetstream.ErrStreamNameAlreadyInUse): // another process was faster
		err = l.api(ctx, "$JS.API.STREAM.INFO."+want.Name, look)
	}
	return info, explainStream(want.Name, err)
}

func explainStream(name string, err error) error {
	var api *jetstream.APIError
	switch {
	case err == nil || errors.Is(err, ErrDenied):
		return err
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled):
		return hinted(err, "put jetstream {store_dir: ...} into the configuration of the NATS servers")
	case errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		return hinted(err, "enable JetStream for this user's account")
	case !errors.As(err, &api):
		return fmt.Errorf("stream %s: %w", name, err)
	}
	err = fmt.Errorf("stream %s: %w", name, err)
	switch api.ErrorCode {
	case codeNotClustered, codeNoPeers:
		return hinted(err, "there are too few servers for the replicas: set replicas to 1, or start more servers with JetStream")
	case codeNoStorage, codeAccountLimits:
		return hinted(err, "the servers have less space than the stream needs: raise max_file_store, or set a smaller stream size")
	}
	return err
}

// check returns an error if the stream can lose segments.
func (l *link) check(c jetstream.StreamConfig) error {
	for _, rule := range []struct {
		broken    bool
		what, fix string
	}{
		{c.Storage != jetstream.FileStorage, "it is kept in memory: segments that were acknowledged are lost when servers stop", "file storage"},
		{c.Retention != jetstream.WorkQueuePolicy, "its retention is not a work queue: it would keep segments that the store has, or drop those that it lacks", "retention workqueue"},
		{c.Discard != jetstream.DiscardNew, "it drops the oldest segments when it is full", "discard new"},
		{c.MaxAge > 0, "it drops segments when they are old", "no max-age"},
		{c.MaxMsgsPerSubject > 0, "it limits the segments of a run", "no limit of messages per subject"},
		{c.NoAck, "it does not acknowledge", "acknowledgements"},
		{c.PersistMode == jetstream.AsyncPersistMode, "it acknowledges before it has written", "the default persist mode"},
		{c.AllowRollup, "a publisher can empty it", "rollups denied"},
		{c.MaxMsgSize >= 0 && c.MaxMsgSize < MaxMessage, fmt.Sprintf("it accepts messages of at most %d bytes, a segment can need %d", c.MaxMsgSize, MaxMessage), "no smaller limit of message sizes"},
		{!covers(c.Subjects), fmt.Sprintf("it does not accept %s", segmentsFrom), "that subject"},
		{c.Sealed, "it is sealed", "a stream that accepts messages"},
	} {
		if rule.broken {
			return hinted(fmt.Errorf("%w: %s", ErrStream, rule.what), "give it %s, or remove it when it is empty: it is created again with the right settings", rule.fix)
		}
	}
	if c.Replicas < 3 && l.conn.ConnectedClusterName() != "" {
		l.config.warn("stream %s has %d replicas in a cluster: the loss of a server's disk can lose segments; hosts send again what the store does not have, as long as they keep it", c.Name, c.Replicas)
	}
	return nil
}

func covers(subjects []string) bool {
	for _, s := range subjects {
		if s == segmentsFrom || s == segmentRoot+">" || s == subjectRoot+"segment.>" {
			return true
		}
	}
	return false
}

// prepareRefused creates the stream of refused segments.
func (l *link) prepareRefused(ctx context.Context) error {
	return l.persist(ctx, func() error {
		_, err := l.stream(ctx, refusedConfig(l.replicas()))
		return err
	})
}
