package vault

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/custody-project/custody/secrets"
)

// Broker is a secrets.Broker for sources vault:PATH#FIELD and vault:PATH.
type Broker struct {
	cfg     Config
	client  *client
	session *session
	log     *auditLog // nil: the log cannot be read from here

	stop  context.CancelFunc
	tasks sync.WaitGroup // the goroutines that keep the session and read the audit log
}

var _ secrets.Broker = (*Broker)(nil)

// Open logs in and renews the login until Close. Its errors name the remedy.
func Open(ctx context.Context, c Config) (*Broker, error) {
	b, err := open(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("vault: %w", err)
	}
	return b, nil
}

func open(ctx context.Context, c Config) (*Broker, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	if c.Place == nil {
		if c.Dir == "" {
			return nil, errors.New("there is no directory for notes on live tokens at Vault")
		}
		c.Place = Here(c)
	}
	cl, err := newClient(c)
	if err != nil {
		return nil, err
	}
	b := &Broker{cfg: c, client: cl, session: newSession(cl, c)}
	if c.Audit != "" {
		if b.log, err = openAudit(c.Place); err != nil {
			return nil, err
		}
	}
	life, stop := context.WithCancel(context.Background())
	b.stop = stop
	b.tasks.Go(func() { b.session.keep(life) })
	if b.log != nil {
		b.tasks.Go(func() { b.log.read(life) })
	}
	if err := b.begin(ctx); err != nil {
		return nil, errors.Join(err, b.Close(context.WithoutCancel(ctx)))
	}
	return b, nil
}

// begin checks the settings.
func (b *Broker) begin(ctx context.Context) error {
	if _, err := b.session.relogin(ctx, token{}); err != nil {
		return err
	}
	if b.log == nil {
		return nil
	}
	return b.log.probe(ctx, b.session)
}

// Name implements secrets.Broker.
func (b *Broker) Name() string { return "vault" }

// Close logs out, if there was a login. Grants that were not revoked end within secrets.TTL.
func (b *Broker) Close(ctx context.Context) error {
	b.stop()
	b.tasks.Wait()
	if b.log != nil {
		b.log.close()
	}
	err := b.session.close(ctx)
	b.client.close()
	if err != nil {
		return fmt.Errorf("vault: %w", err)
	}
	return nil
}
