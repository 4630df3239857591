package quota_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/custody-project/custody/quota"
)

// openTokens returns a queue with the file, in which each tenant can use 100 tokens a day.
func openTokens(t *testing.T, path string) *quota.Queue {
	t.Helper()
	q, err := quota.Open(quota.Config{Host: quota.Host{CPUs: 8, Memory: 8 * gib}, Tenant: quota.Limits{TokensPerDay: 100}}, path)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// TestTokensAfterRestart: the tokens of a day count after the end of the process that charged them, and not on the next day.
func TestTokensAfterRestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	synctest.Test(t, func(t *testing.T) {
		q := openTokens(t, path)
		for range 30 {
			if err := q.Charge("acme", "web", 2); err != nil {
				t.Fatal(err)
			}
		}
		if err := q.Charge("", "", 7); err != nil {
			t.Fatal(err)
		}
		killed := openTokens(t, path) // the first one has not closed the file
		if err := killed.Charge("acme", "other", 39); err != nil {
			t.Error(err)
		}
		wantError(t, killed.Charge("acme", "web", 1), quota.Error{Quota: quota.Tokens, Scope: quota.OfTenant, Limit: 100, InUse: 100})
		q.Close()
		killed.Close()

		text, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(path, append(text, "2"...), 0o600) // a line that was being written
		}
		if err != nil {
			t.Fatal(err)
		}
		again := openTokens(t, path)
		if err := again.Charge("acme", "web", 0); err == nil {
			t.Error("the tokens of the day are not used up after a restart")
		}
		for _, use := range again.Snapshot().Tenants {
			if want := map[string]int64{"acme": 100, "": 7}[use.Tenant]; use.Tokens != want {
				t.Errorf("%q has used %d tokens in place of %d", use.Tenant, use.Tokens, want)
			}
		}
		again.Close()
		time.Sleep(24 * time.Hour)
		tomorrow := openTokens(t, path)
		defer tomorrow.Close()
		if err := tomorrow.Charge("acme", "web", 99); err != nil {
			t.Errorf("on the next day: %v", err)
		}
		if text, err := os.ReadFile(path); err != nil || strings.Count(string(text), "\n") != 1 {
			t.Errorf("the file has %q, %v", text, err)
		}
	})
}

// TestDamagedTokens: a file that is not understood is an error that names the line.
func TestDamagedTokens(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	for _, text := range []string{"1\ta\n", "1\ta\tb\t-1\n", "x\ta\tb\t1\n", "1\ta\tb\tc\td\n"} {
		if err := os.WriteFile(path, []byte("1\ta\tb\t1\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := quota.Open(quota.Config{Host: quota.Host{CPUs: 8, Memory: 8 * gib}}, path); err == nil || !strings.Contains(err.Error(), "line 2") {
			t.Errorf("%q: %v", text, err)
		}
	}
}
