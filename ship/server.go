package ship

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Names and limits on the server.
const (
	streamName   = "CUSTODY"
	consumerName = "ingest"

	// maxHeld bounds the bytes of segments in the stream; beyond it Publish waits.
	maxHeld = 64 << 20
	// maxMemory is JetStream's limit, which is never reached, since Publish waits before.
	maxMemory = 2 * maxHeld
	// startTimeout bounds the server's start, which takes milliseconds.
	startTimeout = 10 * time.Second
	// ackWaitHere is for a store that hangs. One that fails returns an error immediately.
	ackWaitHere = time.Minute
	// duplicates with the same message id are dropped within this time; later
	// ones reach the store, where they are harmless too.
	duplicates = 2 * time.Minute
)

// embedded is a NATS server in this process that does not listen, with a
// connection to it, the stream and the consumer.
type embedded struct {
	server   *server.Server
	conn     *nats.Conn
	stream   jetstream.JetStream
	consumer jetstream.Consumer
	dir      string
}

// startEmbedded starts all parts. After an error it stops them.
func startEmbedded(ctx context.Context) (e *embedded, err error) {
	e = &embedded{}
	defer func() {
		if err != nil {
			e.stop()
			err = fmt.Errorf("start transport: %w", err)
		}
	}()
	if err := e.startServer(); err != nil {
		return e, err
	}
	e.conn, err = nats.Connect("", nats.InProcessServer(e.server), nats.Name("custody"), nats.MaxReconnects(-1))
	if err != nil {
		return e, err
	}
	if e.stream, err = jetstream.New(e.conn); err != nil {
		return e, err
	}
	if err := e.configure(ctx); err != nil {
		return e, err
	}
	return e, os.RemoveAll(e.dir)
}

// startServer starts the server alone. Although all its streams are in memory, JetStream
// requires a writable directory; it is empty, and removed once the server has started.
func (e *embedded) startServer() (err error) {
	if e.dir, err = os.MkdirTemp("", "custody-transport-"); err != nil {
		return err
	}
	e.server, err = server.NewServer(&server.Options{
		ServerName:         "custody",
		DontListen:         true,
		NoSigs:             true,
		NoLog:              true,
		JetStream:          true,
		JetStreamMaxMemory: maxMemory,
		JetStreamMaxStore:  1, // nothing is stored in files
		StoreDir:           filepath.Join(e.dir, "store"),
		MaxPayload:         MaxMessage,
		MaxPending:         2 * MaxMessage,
	})
	if err != nil {
		return err
	}
	e.server.Start()
	if !e.server.ReadyForConnections(startTimeout) {
		return errors.New("the NATS server was not ready in time")
	}
	return nil
}

func (e *embedded) configure(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	_, err := e.stream.CreateStream(ctx, jetstream.StreamConfig{
		Name:       streamName,
		Subjects:   []string{segmentsFrom},
		Storage:    jetstream.MemoryStorage, // the log has every segment
		Retention:  jetstream.WorkQueuePolicy,
		MaxBytes:   maxMemory,
		Discard:    jetstream.DiscardNew, // a full stream refuses messages and drops none
		MaxMsgSize: MaxMessage,
		Duplicates: duplicates,
	})
	if err != nil {
		return err
	}
	e.consumer, err = e.stream.CreateConsumer(ctx, streamName, jetstream.ConsumerConfig{
		Durable:       consumerName,
		AckPolicy:     jetstream.AckExplicitPolicy,
		AckWait:       ackWaitHere,
		MaxDeliver:    -1,          // redelivered until the store has it
		MaxAckPending: maxTogether, // one batch at a time: records appear in the store in order
		MemoryStorage: true,
	})
	return err
}

func (e *embedded) stop() {
	if e.consumer != nil {
		// Without it the server waits 50 ms for the consumer's open request to end.
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		_ = e.stream.DeleteStream(ctx, streamName)
		// A goroutine of the server that first runs during its shutdown would panic if a request for information were left.
		// The answer to this one comes after those to all others.
		_, _ = e.stream.Stream(ctx, streamName)
		cancel()
	}
	if e.conn != nil {
		e.conn.Close()
	}
	if e.server != nil {
		e.server.Shutdown()
		e.server.WaitForShutdown()
	}
	if e.dir != "" {
		os.RemoveAll(e.dir)
	}
}
