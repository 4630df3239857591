package secrets

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/custody-project/custody/audit"
)

// A model is the expected state of a lease.
type model struct {
	lease     *Lease
	step      string
	names     []string
	limit     time.Time
	least     time.Time // it is alive until then unless something kills it
	most      time.Time // it has ended then
	delivered bool
	dead      bool
	grants    []*fakeGrant
}

// walk performs random operations on an issuer and compares it with its models after each.
type walk struct {
	*world
	rng    *rand.Rand
	models []*model
	thaw   func()
}

// TestModel performs random sequences of operations with random faults: a credential is available only while its lease
// is alive, no grant is alive after a successful end, and each mint event is followed by a revocation or an expiry.
func TestModel(t *testing.T) {
	for seed := range uint64(40) {
		inWorld(t, func(c *Config) { c.Action = []string{"revoke", "freeze", "end"}[seed%3] }, func(w *world) {
			k := &walk{world: w, rng: rand.New(rand.NewPCG(seed, 11)), thaw: func() {}}
			for range 60 {
				k.step()
				synctest.Wait()
				k.compare()
			}
			k.end()
			if w.t.Failed() {
				w.t.Fatalf("seed %d", seed)
			}
		})
	}
}

func (k *walk) step() {
	m := k.any()
	switch n := k.rng.IntN(20); {
	case n < 4 || m == nil:
		k.begin()
	case n < 6:
		if _, err := m.lease.Deliver(k.t.Context()); err == nil {
			m.delivered = true
		}
	case n < 10:
		k.renew(m)
	case n < 12:
		k.finish(m)
	case n == 12:
		k.anomaly(m)
	case n == 13 && k.rng.IntN(3) == 0:
		k.revokeAll()
	case n == 14:
		k.fault()
	default:
		time.Sleep(time.Duration(k.rng.IntN(int(30 * time.Second))))
	}
}

func (k *walk) any() *model {
	if len(k.models) == 0 {
		return nil
	}
	return k.models[k.rng.IntN(len(k.models))]
}

func (k *walk) begin() {
	var names []string
	for _, n := range []string{"git", "npm", "api", "bare", "tok", "seen"} {
		if k.rng.IntN(2) == 0 {
			names = append(names, n)
		}
	}
	m := &model{step: fmt.Sprint("s", len(k.models)), names: names}
	limit := time.Duration(1 + k.rng.IntN(int(5*time.Minute)))
	start, v, l := time.Now(), len(k.vault.grants), len(k.local.grants)
	lease, err := k.issuer.Begin(k.t.Context(), m.step, names, limit)
	m.grants = append(append(m.grants, k.vault.grants[v:]...), k.local.grants[l:]...)
	if err != nil {
		return
	}
	m.lease, m.limit = lease, start.Add(limit)
	m.least, m.most = m.reach(start), m.reach(time.Now())
	k.models = append(k.models, m)
}

func (m *model) reach(t time.Time) time.Time {
	if len(m.grants) == 0 {
		return m.limit.Add(1000 * time.Hour) // nothing in it can expire
	}
	if t = t.Add(TTL); t.After(m.limit) {
		return m.limit
	}
	return t
}

func (k *walk) renew(m *model) {
	start := time.Now()
	err := m.lease.Renew(k.t.Context())
	if err == nil {
		m.least = m.reach(start)
	}
	if time.Now().Before(m.most) { // even a failed renewal may have renewed some grants
		m.most = m.reach(time.Now())
	}
}

func (k *walk) finish(m *model) {
	start := time.Now()
	err := m.lease.End(k.t.Context(), "the step has ended")
	m.dead = true
	if d := time.Since(start); d > settleTime {
		k.t.Errorf("an end of %v", d)
	}
	for _, g := range m.grants {
		if err == nil && k.lives(g) {
			k.t.Errorf("%s of %s is alive after a successful end", g.Accessor(), m.step)
		}
	}
}

func (k *walk) lives(g *fakeGrant) bool {
	g.broker.mu.Lock()
	defer g.broker.mu.Unlock()
	return !g.revoked && time.Now().Before(g.until)
}

func (k *walk) anomaly(m *model) {
	if len(m.names) == 0 {
		return
	}
	name := m.names[k.rng.IntN(len(m.names))]
	if k.rng.IntN(2) == 0 && name != "seen" {
		k.issuer.Saw(audit.KindOutput, m.step, []string{name}, 3)
	} else {
		k.issuer.Saw(audit.KindDNS, m.step, []string{name}, 3)
	}
	m.dead = true
}

func (k *walk) revokeAll() {
	err := k.issuer.RevokeAll(k.t.Context(), "the sandbox is paused")
	for _, m := range k.models {
		m.dead = true
	}
	if n := k.vault.alive() + k.local.alive(); err == nil && n > 0 {
		k.t.Errorf("%d grants are alive after all were revoked", n)
	}
}

func (k *walk) fault() {
	f := []*fake{k.vault, k.local}[k.rng.IntN(2)]
	k.thaw()
	k.thaw = func() {}
	if k.rng.IntN(4) == 0 {
		k.thaw = k.log.stall()
		return
	}
	f.heal()
	faults := []func(){
		func() {}, func() {}, func() {},
		func() { f.mintErr = errDown }, func() { f.renewErr = errDown }, func() { f.revokeErr = errDown },
		func() { f.mintTakes = 3 * time.Second }, func() { f.renewTakes = 3 * time.Second }, func() { f.revokeTakes = time.Second },
		func() { f.mintTakes = time.Hour }, func() { f.renewTakes = time.Hour }, func() { f.revokeTakes = time.Hour },
	}
	f.set(faults[k.rng.IntN(len(faults))])
}

// compare compares all leases with their models. It calls the lease's credential method, because Issuer.Credential may
// choose any lease with the secret.
func (k *walk) compare() {
	for _, m := range k.models {
		now := time.Now()
		dead := m.lease.alive() != nil
		switch {
		case (m.dead || !now.Before(m.most)) && !dead:
			k.t.Errorf("%s is alive, but it is dead (%v) or expired %v ago", m.step, m.dead, now.Sub(m.most))
		case !m.dead && now.Before(m.least) && dead:
			k.t.Errorf("%s is dead for %v", m.step, m.lease.alive())
		case closed(m.lease.Over()) != (m.lease.Err() != nil):
			k.t.Errorf("%s: over, or %v", m.step, m.lease.Err())
		}
		m.dead = m.dead || dead
		for _, n := range m.names {
			if !strings.Contains("api bare", n) {
				continue
			}
			c, err := m.lease.credential(n)
			if given := m.delivered && !m.dead; given != (err == nil) || given && string(c.Value) != value(n, 0) {
				k.t.Errorf("%s of %s: %q, %v; delivered %v, dead %v", n, m.step, c.Value, err, m.delivered, m.dead)
			}
		}
	}
}

// end closes the issuer and checks the record.
func (k *walk) end() {
	k.thaw()
	k.vault.heal()
	k.local.heal()
	if err := k.issuer.Close(k.t.Context()); err != nil {
		k.t.Error(err)
	}
	minted, over := map[string]bool{}, map[string]string{}
	for _, ev := range k.log.events() {
		s := ev.Secret
		if s == nil || s.Accessor == "" {
			continue
		}
		switch s.Op {
		case audit.SecretMint:
			minted[s.Accessor] = true
		case audit.SecretRevoke, audit.SecretExpire:
			over[s.Accessor] += string(s.Op) + " "
		}
		if o := over[s.Accessor]; !minted[s.Accessor] || strings.HasPrefix(o, "revoke ") && o != "revoke " || strings.Count(o, "expire") > 1 {
			k.t.Errorf("%s of %s comes before its mint, or after its end: %q", s.Op, ev.Step, o)
		}
	}
	for _, f := range []*fake{k.vault, k.local} {
		for _, g := range f.grants {
			a := digest(g.Accessor())
			if !minted[a] || over[a] == "" {
				k.t.Errorf("%s: minted %v, over %q", g.Accessor(), minted[a], over[a])
			}
			for name, v := range g.values {
				if strings.Trim(string(v), "\x00") != "" || k.lives(g) {
					k.t.Errorf("%s: %s is %q, alive %v", g.Accessor(), name, v, k.lives(g))
				}
			}
		}
	}
	if strings.Contains(k.log.raw.String(), "the-value-of") || strings.Contains(k.log.raw.String(), "hvs.") {
		k.t.Error("a value is in the record")
	}
}
