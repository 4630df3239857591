package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/custody-project/custody/llm"
)

// charged is the answer to a charge: why further LLM API calls are denied, and until when; empty if they are not.
type charged struct {
	Why   string
	Until time.Time
}

// account charges the run's LLM tokens to the quota of its tenant, which the owner of the run keeps. It is safe for concurrent use.
type account struct {
	reports *reports

	mu   sync.Mutex // guards last
	last charged
}

var _ llm.Account = (*account)(nil)

// Charge implements llm.Account.
func (a *account) Charge(tokens int64) { a.reports.charged(tokens) }

// Spent implements llm.Account.
func (a *account) Spent() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.last.Why == "" || !time.Now().Before(a.last.Until) {
		return nil
	}
	return fmt.Errorf("%s", a.last.Why)
}

// Ask implements llm.Account.
func (a *account) Ask(ctx context.Context) error {
	if err := a.settle(ctx, a.reports.uncharged()); err != nil {
		return errors.New("the tokens that are left today are not known")
	}
	return a.Spent()
}

// settle charges tokens, and keeps the answer.
func (a *account) settle(ctx context.Context, tokens int64) error {
	var answer charged
	if _, err := a.reports.conn.Call(ctx, callCharge, tokens, &answer); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last = answer
	return nil
}
