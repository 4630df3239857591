package host_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/audit/proof/hostkey"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/redact"
	"github.com/custody-project/custody/store/storetest"
)

// vault is a real Vault server (hack/vault) on the loopback, with a token for this process.
type vault struct {
	Address string `json:"address"`
	Token   string `json:"token"`
	Unseal  string `json:"unseal_key"`
}

func newVault(t *testing.T) *vault {
	t.Helper()
	bin := os.Getenv("CUSTODY_TEST_VAULT")
	if bin == "" {
		t.Fatal("CUSTODY_TEST_VAULT does not name a Vault to test with: run hack/test, or set it to what hack/build-vault prints")
	}
	cmd := exec.Command(bin)
	stdin, err := cmd.StdinPipe()
	must(t, err)
	stdout, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() {
		stdin.Close()
		cmd.Process.Kill()
		cmd.Wait()
	})
	v := &vault{}
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	must(t, err)
	must(t, json.Unmarshal(line, v))
	v.call(t, "sys/mounts/transit", map[string]any{"type": "transit"})
	v.call(t, "transit/keys/host", map[string]any{"type": "ed25519"})
	t.Setenv("VAULT_ADDR", v.Address)
	t.Setenv("VAULT_TOKEN", v.Token)
	return v
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// call makes a request to Vault without using the code under test.
func (v *vault) call(t testing.TB, path string, body map[string]any) {
	t.Helper()
	text, err := json.Marshal(body)
	must(t, err)
	req, err := http.NewRequest("POST", v.Address+"/v1/"+path, bytes.NewReader(text))
	must(t, err)
	req.Header.Set("X-Vault-Token", v.Token)
	resp, err := http.DefaultClient.Do(req)
	must(t, err)
	resp.Body.Close()
	if resp.StatusCode >= 300 {
		t.Fatalf("%s: HTTP %d", path, resp.StatusCode)
	}
}

func (v *vault) seal(t testing.TB)   { v.call(t, "sys/seal", nil) }
func (v *vault) unseal(t testing.TB) { v.call(t, "sys/unseal", map[string]any{"key": v.Unseal}) }

// privateKeys returns the files of a home that contain private keys.
func privateKeys(t testing.TB, dir string) []string {
	t.Helper()
	var found []string
	must(t, filepath.WalkDir(filepath.Join(dir, "keys"), func(path string, d os.DirEntry, err error) error {
		if err == nil && strings.HasPrefix(d.Name(), hostkey.KeyFile) {
			found = append(found, d.Name())
		}
		return err
	}))
	return found
}

// TestVaultAway: while Vault is unavailable, a run stalls as on a full disk. It continues when Vault is back, and nothing is lost.
func TestVaultAway(t *testing.T) {
	v := newVault(t)
	dir := t.TempDir()
	h := configured(t, dir, "vault-transit:transit/host")
	stalled, resumed := make(chan error, 1), make(chan bool, 1)
	id := host.NewRunID(storetest.Start())
	run, err := h.Begin(t.Context(), host.RunOptions{ID: id, Mode: wal.Strict, Facts: statement.Facts{Tier: "none"}, Redactor: redact.New(make([]byte, 32)),
		OnStall: func(err error) { stalled <- err }, OnResume: func() { resumed <- true }})
	must(t, err)
	v.seal(t)
	events := storetest.Events(8)
	for _, e := range events[:4] {
		_, err := run.Record(t.Context(), e)
		must(t, err)
	}
	select {
	case err := <-stalled:
		if !strings.Contains(err.Error(), "sign with Vault") {
			t.Errorf("stalled: %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("a segment that cannot be signed does not stall the run")
	}
	if _, err := h.Keys().Signing(); err != nil { // caches the key in this process
		t.Error(err)
	}
	v.unseal(t)
	<-resumed
	for _, e := range events[4:] {
		_, err := run.Record(t.Context(), e)
		must(t, err)
	}
	record, stored := run.Close(t.Context(), wal.Sealed)
	must(t, record)
	must(t, stored)
	must(t, h.Shipping().Ship(t.Context(), false, func(string) {}))
	public, err := h.Keys().Public()
	must(t, err)
	must(t, bundled(t, h, id, public))
	if found := privateKeys(t, dir); len(found) > 0 {
		t.Errorf("private keys on the disk: %q", found)
	}
}

// TestVaultAwayAtTheEnd: the end of a run waits for Vault for a bounded time. By then every record is on the disk. Meanwhile no
// other run begins, reading works, and the first command after Vault is back closes the run.
func TestVaultAwayAtTheEnd(t *testing.T) {
	v := newVault(t)
	dir := t.TempDir()
	h := configured(t, dir, "vault-transit:transit/host")
	before := shipped(t, h)
	id := host.NewRunID(storetest.Start())
	run, err := h.Begin(t.Context(), host.RunOptions{ID: id, Mode: wal.Strict, Facts: statement.Facts{Tier: "none"}, Redactor: redact.New(make([]byte, 32)),
		KeyWait: time.Millisecond})
	must(t, err)
	run.Ship(t.Context())
	events := storetest.Events(8)
	v.seal(t)
	for _, e := range events {
		_, err := run.Record(t.Context(), e)
		must(t, err)
	}
	if record, _ := run.Close(t.Context(), wal.Sealed); record == nil || !strings.Contains(record.Error(), "the next custody command") {
		t.Errorf("the run is closed without its key: %v", record)
	}

	h, err = host.Open(dir) // another process
	must(t, err)
	if _, err := h.Begin(t.Context(), host.RunOptions{ID: host.NewRunID(storetest.Start())}); err == nil || !strings.Contains(err.Error(), "Vault") {
		t.Errorf("a run begins without its key: %v", err)
	}
	if _, err := h.Keys().Rotate(t.Context(), ""); err == nil {
		t.Error("the key is rotated")
	}
	if err := h.Tidy(t.Context(), func(string) {}); err == nil {
		t.Error("the run is closed without its key")
	}
	public, err := h.Keys().Public()
	must(t, err)
	checked, err := h.Checks().Fsck(t.Context(), host.FsckOptions{})
	must(t, err)
	for _, p := range checked.Problems {
		if p.Run == before {
			t.Errorf("fsck: %v", p)
		}
	}

	v.unseal(t)
	h, err = host.Open(dir)
	must(t, err)
	must(t, h.Tidy(t.Context(), func(string) {}))
	records := 0
	for _, err := range h.RunLogs().Frames(id) {
		must(t, err)
		records++
	}
	if records < len(events) {
		t.Errorf("%d records of %d events", records, len(events))
	}
	must(t, bundled(t, h, id, public))
	must(t, bundled(t, h, before, public))
	checked, err = h.Checks().Fsck(t.Context(), host.FsckOptions{})
	must(t, err)
	if len(checked.Problems) > 0 {
		t.Errorf("fsck: %v", checked.Problems)
	}
}

// TestKeyToVault moves a key from a file into Vault, and from there into an encrypted file. The host and its log keep their name.
func TestKeyToVault(t *testing.T) {
	newVault(t)
	dir := t.TempDir()
	h, err := host.Open(dir)
	must(t, err)
	shipped(t, h)
	first, err := h.Keys().Signing()
	must(t, err)
	h = configured(t, dir, "vault-transit:transit/host")
	if _, err := h.Keys().Signing(); err == nil {
		t.Error("a key without a signature of the old one is used")
	}
	second, err := h.Keys().Rotate(t.Context(), "file")
	must(t, err)
	if second.Name() != first.Name() {
		t.Errorf("%s was %s", second.Name(), first.Name())
	}
	if found := privateKeys(t, dir); len(found) > 0 {
		t.Errorf("private keys on the disk: %q", found)
	}
	must(t, bundled(t, h, shipped(t, h), first.Public))
	_, err = h.Keys().Rotate(t.Context(), "")
	must(t, err)
	h = configured(t, dir, "age:"+newIdentity(t))
	_, err = h.Keys().Rotate(t.Context(), "vault-transit:transit/host")
	must(t, err)
	must(t, bundled(t, h, shipped(t, h), first.Public))
	checked, err := h.Checks().Fsck(t.Context(), host.FsckOptions{})
	must(t, err)
	if len(checked.Problems) > 0 {
		t.Errorf("fsck: %v", checked.Problems)
	}
}
