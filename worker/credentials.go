package worker

import (
	"context"
	"time"

	"github.com/custody-project/custody/project"
	"github.com/custody-project/custody/secrets"
	brokers "github.com/custody-project/custody/secrets/remote"
)

// revokeTime bounds the revocation of credentials at a run's end.
const revokeTime = 10 * time.Second

// openIssuer makes the run's issuer, which mints nothing before a step begins. From here on, secret values that can be read
// without minting are masked.
func (w *worker) openIssuer() error {
	if w.order.Brokers == nil {
		return nil
	}
	bindings, err := w.order.bindings()
	if err != nil {
		return err
	}
	w.issuer = secrets.NewIssuer(secrets.Config{
		Run: w.order.Settings.Run, Bindings: bindings, Brokers: brokers.New(w.conn, w.order.Brokers),
		Recorder: w.record, Redactor: w.redactor, Action: w.order.Anomaly, Act: w.act,
		Withdrawn: func(secret, reason string) { w.network.Withdraw(secret, reason) },
		Recorded:  func(_ string, find func([]byte) bool) (uint64, bool) { return w.recorded(find) },
	})
	for name, err := range w.issuer.Learn() {
		w.notice("the secret " + name + " is masked only from the step that first gets it: " + err.Error())
	}
	return nil
}

// recorded returns the seq of the first durable record for which find returns true.
func (w *worker) recorded(find func(record []byte) bool) (seq uint64, ok bool) {
	for f, err := range w.files.Frames() {
		if err != nil {
			break // the rest is being written
		}
		if find(f.Bytes) {
			return f.Seq, true
		}
	}
	return 0, false
}

// act takes the action that the project sets for anomalies. The credentials have been revoked already.
func (w *worker) act(ctx context.Context, action, reason string) {
	s, err := w.current()
	w.notice(reason + ": its credentials are revoked")
	switch {
	case err != nil:
	case action == string(project.End):
		s.Abort(reason)
	case action == string(project.Freeze):
		if err := s.Quarantine(ctx); err != nil {
			w.notice("freeze: " + err.Error())
			return
		}
		run := w.order.Settings.Run
		w.notice("the sandbox is frozen: custody resume " + run + " lets it continue, custody snapshot saves its memory")
	}
}

// revokeAll revokes the remaining credentials.
func (w *worker) revokeAll(ctx context.Context) {
	if w.issuer == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, revokeTime)
	defer cancel()
	if err := w.issuer.Close(ctx); err != nil {
		w.reports.problem(err)
	}
}
