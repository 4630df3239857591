package secrets

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/custody-project/custody/audit"
)

// How a lease ends before its step: when, and with what error.
func TestOver(t *testing.T) {
	minute := func(w *world, l *Lease) { time.Sleep(61 * time.Second) }
	cases := []struct {
		name  string
		limit time.Duration
		do    func(w *world, l *Lease)
		after time.Duration // since Begin
		want  string
	}{
		{"no proof", time.Hour, minute, 60 * time.Second, "did not prove"},
		{"limit", 30 * time.Second, minute, 30 * time.Second, "limit"},
		{"limit while renewed", 90 * time.Second, func(w *world, l *Lease) {
			for range 12 {
				time.Sleep(10 * time.Second)
				_ = l.Renew(w.t.Context())
			}
		}, 90 * time.Second, "limit"},
		{"broker down", time.Hour, func(w *world, l *Lease) {
			w.vault.set(func() { w.vault.renewErr = errDown })
			for range 7 {
				time.Sleep(10 * time.Second)
				_ = l.Renew(w.t.Context())
			}
		}, 60 * time.Second, "connection refused"},
		{"broker hangs", time.Hour, func(w *world, l *Lease) {
			w.vault.set(func() { w.vault.renewTakes = time.Hour })
			for range 4 {
				time.Sleep(10 * time.Second)
				_ = l.Renew(w.t.Context())
			}
		}, 60 * time.Second, "deadline exceeded"},
		{"lost", time.Hour, func(w *world, l *Lease) {
			time.Sleep(10 * time.Second)
			_ = w.vault.last().Revoke(w.t.Context())
			_ = l.Renew(w.t.Context())
		}, 10 * time.Second, "no longer has"},
		{"lives longer", time.Hour, func(w *world, l *Lease) {
			w.vault.set(func() { w.vault.ttl = time.Hour })
			_ = l.Renew(w.t.Context())
			time.Sleep(50 * time.Second)
		}, 60 * time.Second, "which may live"},
		{"renewal unrecorded", time.Hour, func(w *world, l *Lease) {
			time.Sleep(10 * time.Second)
			w.log.breaks(errors.New("disk full"))
			_ = l.Renew(w.t.Context())
			w.log.breaks(nil)
			time.Sleep(50 * time.Second)
		}, 60 * time.Second, "disk full"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, nil, func(w *world) {
				start := time.Now()
				l, err := w.issuer.Begin(w.t.Context(), "s", []string{"git", "api"}, c.limit)
				if err != nil {
					t.Fatal(err)
				}
				_, _ = l.Deliver(w.t.Context())
				var over time.Duration
				done := make(chan struct{})
				go func() {
					defer close(done)
					<-l.Over()
					over = time.Since(start)
				}()
				c.do(w, l)
				<-done
				if over != c.after {
					t.Errorf("over after %v", over)
				}
				if err := l.Err(); !Expired(err) || Anomalous(err) || !strings.Contains(err.Error(), c.want) {
					t.Errorf("error %v", err)
				}
				if _, err := w.issuer.Credential("api"); err == nil || err.Error() != "the step's credentials have expired" {
					t.Errorf("the gateway still receives it: %v", err)
				}
				if err := l.Renew(w.t.Context()); !Expired(err) {
					t.Errorf("renewed after the end: %v", err)
				}
				if _, err := l.Deliver(w.t.Context()); !Expired(err) {
					t.Errorf("delivered after the end: %v", err)
				}
				w.vault.heal()
				_ = l.End(w.t.Context(), "the step has ended")
				synctest.Wait()
				ops := strings.Join(w.log.ops(), ", ")
				if !strings.Contains(ops, "s expire") || !strings.Contains(ops, "s revoke") {
					t.Errorf("ops %s", ops)
				}
			})
		})
	}
}

// A later renewal can succeed after some have failed, and Renew returns soon.
func TestRenewAgain(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		l := w.deliver("s", "git")
		time.Sleep(20 * time.Second)
		w.vault.set(func() { w.vault.renewErr = errDown })
		before := time.Now()
		if err := l.Renew(w.t.Context()); err == nil || !strings.Contains(err.Error(), "connection refused") {
			t.Errorf("error %v", err)
		}
		if d := time.Since(before); d > proofTime {
			t.Errorf("a renewal took %v", d)
		}
		go func() { time.Sleep(3 * time.Second); w.vault.heal() }()
		if err := l.Renew(w.t.Context()); err != nil {
			t.Errorf("healed: %v", err)
		}
		ctx, cancel := context.WithTimeout(w.t.Context(), time.Second)
		defer cancel()
		w.vault.set(func() { w.vault.renewTakes = time.Hour })
		if err := l.Renew(ctx); err == nil {
			t.Error("renewed by a broker that hangs")
		}
		time.Sleep(50 * time.Second)
		if closed(l.Over()) {
			t.Error("the good renewal did not count")
		}
	})
}

// Neither a broker's times from a host whose clock jumps, nor the host's sleep make a lease longer.
func TestClocks(t *testing.T) {
	for _, jump := range []time.Duration{-time.Hour, time.Hour} {
		inWorld(t, nil, func(w *world) {
			w.vault.expires = func(at time.Time) time.Time { return at.Round(0).Add(jump) } // no monotonic clock reading
			start := time.Now()
			l, err := w.issuer.Begin(w.t.Context(), "s", []string{"git"}, time.Hour)
			if err == nil { // the broker seems to grant less than it does
				<-l.Over()
			}
			synctest.Wait()
			if d := time.Since(start); d > TTL || w.vault.alive() > 0 {
				t.Errorf("jump %v: alive after %v", jump, d)
			}
		})
	}
	inWorld(t, nil, func(w *world) {
		var asleep time.Duration
		w.issuer.slept = func() time.Duration { w.vault.mu.Lock(); defer w.vault.mu.Unlock(); return asleep }
		start := time.Now()
		l := w.deliver("s", "api")
		time.Sleep(5 * time.Second)
		w.vault.set(func() { asleep = time.Hour })
		if _, err := w.issuer.Credential("api"); err == nil {
			t.Error("a credential outlives the host's sleep")
		}
		<-l.Over()
		if d := time.Since(start); d > 6*time.Second || !Expired(l.Err()) {
			t.Errorf("noticed after %v: %v", d, l.Err())
		}
	})
}

// The duration of Mint counts towards the TTL.
func TestSlowMint(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		w.vault.mintTakes = 20 * time.Second
		start := time.Now()
		l := w.begin("s", "git")
		<-l.Over()
		if d := time.Since(start); d != TTL {
			t.Errorf("alive for %v", d)
		}
	})
}

// A grant counts as alive until the broker confirms its revocation, or until its TTL.
func TestRevokeFails(t *testing.T) {
	cases := []struct {
		name  string
		fault func(*fake)
	}{
		{"refused", func(f *fake) { f.revokeErr = errDown }},
		{"hangs", func(f *fake) { f.revokeTakes = time.Hour }},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, nil, func(w *world) {
				l := w.deliver("s", "git", "npm")
				w.vault.set(func() { c.fault(w.vault) })
				start := time.Now()
				ctx, cancel := context.WithCancel(w.t.Context())
				cancel() // a cancelled context is no reason to leave a token alive
				err := l.End(ctx, "the step has ended")
				if d := time.Since(start); d > settleTime {
					t.Errorf("an end of %v", d)
				}
				if err == nil || !strings.Contains(err.Error(), "vault has not confirmed") {
					t.Errorf("error %v", err)
				}
				sameSet(t, w.log.ops()[4:], []string{"s revoke npm", "s expire git"})
				for _, ev := range w.log.events() {
					if s := ev.Secret; s.Op == audit.SecretExpire && (!strings.Contains(s.Reason, "did not confirm") || !s.Expires.Equal(start.Add(TTL))) {
						t.Errorf("expire: %+v", s)
					}
				}
				if err := w.issuer.RevokeAll(w.t.Context(), "a snapshot is made"); err == nil {
					t.Error("a snapshot could be made with a live token")
				}
				w.vault.heal()
				time.Sleep(longestTry + longestPause)
				if w.vault.alive() > 0 {
					t.Error("not tried again")
				}
				sameSet(t, w.log.ops()[6:], []string{"s revoke git"})
				if err := w.issuer.RevokeAll(w.t.Context(), "a snapshot is made"); err != nil {
					t.Error(err)
				}
			})
			inWorld(t, nil, func(w *world) {
				l := w.begin("s", "git")
				w.vault.set(func() { c.fault(w.vault) })
				_ = l.End(w.t.Context(), "the step has ended")
				time.Sleep(TTL)
				if err := w.issuer.RevokeAll(w.t.Context(), "later"); err != nil {
					t.Errorf("it has expired: %v", err)
				}
				sameSet(t, w.log.ops(), []string{"s mint git", "s expire git"})
			})
		})
	}
}

// A confirmation that arrives after the first tries counts.
func TestSlowRevocation(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		l := w.begin("s", "git")
		w.vault.set(func() { w.vault.revokeTakes = 3500 * time.Millisecond })
		if err := l.End(w.t.Context(), "the step has ended"); err == nil {
			t.Error("confirmed too early")
		}
		if err := l.End(w.t.Context(), "again"); err != nil {
			t.Error(err)
		}
		sameSet(t, w.log.ops(), []string{"s mint git", "s expire git", "s revoke git"})
	})
}

// A pause also revokes grants that are being minted.
func TestRevokeAll(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		a := w.deliver("a", "git", "npm")
		w.vault.set(func() { w.vault.mintTakes = 2 * time.Second })
		begun := make(chan error)
		go func() {
			_, err := w.issuer.Begin(w.t.Context(), "b", []string{"api"}, time.Hour)
			begun <- err
		}()
		time.Sleep(time.Second)
		if err := w.issuer.RevokeAll(w.t.Context(), "the sandbox is paused"); err != nil {
			t.Error(err)
		}
		if n := w.vault.alive() + w.local.alive(); n > 0 {
			t.Errorf("%d grants alive after all were revoked", n)
		}
		if err := <-begun; err == nil || !strings.Contains(err.Error(), "paused") {
			t.Errorf("Begin during the pause: %v", err)
		}
		if err := a.Err(); !closed(a.Over()) || err == nil || Expired(err) || Anomalous(err) || !strings.Contains(err.Error(), "paused") {
			t.Errorf("error %v", err)
		}
		a = w.deliver("a", "git") // after the pause
		if err := a.End(w.t.Context(), "done"); err != nil {
			t.Error(err)
		}
	})
}
