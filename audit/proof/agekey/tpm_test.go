package agekey_test

import (
	"bytes"
	"crypto/sha256"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport/linuxudstpm"

	"github.com/custody-project/custody/audit/proof/agekey"
)

// tpm is swtpm, a TPM 2.0 in a process of the test.
type tpm struct {
	*testing.T
	socket string
}

func newTPM(t *testing.T) *tpm {
	t.Helper()
	dir, err := os.MkdirTemp("", "tpm") // a socket's path is short
	must(t, err)
	p := &tpm{t, filepath.Join(dir, "sock")}
	cmd := exec.Command("swtpm", "socket", "--tpm2", "--tpmstate", "dir="+dir, "--server", "type=unixio,path="+p.socket,
		"--ctrl", "type=unixio,path="+p.socket+".ctrl", "--flags", "not-need-init,startup-clear")
	if err := cmd.Start(); err != nil {
		t.Fatalf("swtpm is needed (package swtpm): %v", err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		os.RemoveAll(dir)
	})
	for range 1000 {
		if c, err := net.Dial("unix", p.socket); err == nil {
			c.Close()
			return p
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("swtpm does not listen")
	return nil
}

// boot extends PCR 7, as firmware does with the certificates that it boots by.
func (p *tpm) boot(what string) {
	p.Helper()
	dev, err := linuxudstpm.Open(p.socket)
	must(p, err)
	defer dev.Close()
	sum := sha256.Sum256([]byte(what))
	_, err = tpm2.PCRExtend{
		PCRHandle: tpm2.AuthHandle{Handle: tpm2.TPMHandle(7), Auth: tpm2.PasswordAuth(nil)},
		Digests:   tpm2.TPMLDigestValues{Digests: []tpm2.TPMTHA{{HashAlg: tpm2.TPMAlgSHA256, Digest: sum[:]}}},
	}.Execute(dev)
	must(p, err)
}

// creds calls systemd-creds with this TPM.
func (p *tpm) creds(args ...string) error {
	p.Helper()
	cmd := exec.Command("systemd-creds", append([]string{args[0], "--tpm2-device=swtpm:path=" + p.socket}, args[1:]...)...)
	cmd.Env = append(os.Environ(), "TSS2_LOG=all+none")
	out, err := cmd.CombinedOutput()
	if err != nil {
		p.Logf("%q: %s", args, out)
	}
	return err
}

// TestTPM follows docs/keys.md: an identity that systemd has sealed to the TPM decrypts the key on this machine in
// its current boot state, and neither after a different boot nor on another machine.
func TestTPM(t *testing.T) {
	t.Parallel()
	p := newTPM(t)
	p.boot("our certificates")
	work := t.TempDir()
	plain, sealed := filepath.Join(work, "identity"), filepath.Join(work, "identity.cred")
	_, err := agekey.NewIdentity(plain)
	must(t, err)
	if err := p.creds("encrypt", "--with-key=tpm2", "--tpm2-pcrs=7", "--name=custody", plain, sealed); err != nil {
		t.Fatalf("systemd-creds, with libtss2-tcti-swtpm0, is needed (hack/deps --test): %v", err)
	}
	secret, err := os.ReadFile(plain)
	must(t, err)
	must(t, os.Remove(plain))
	text, err := os.ReadFile(sealed)
	must(t, err)
	if bytes.Contains(text, secret) {
		t.Error("the sealed identity is in the clear")
	}

	dir := filepath.Join(work, "home", "keys")
	given := t.TempDir() // what systemd makes of LoadCredentialEncrypted
	env := func(c *agekey.Config) {
		c.Getenv = func(name string) string { return map[string]string{"CREDENTIALS_DIRECTORY": given}[name] }
	}
	unsealed := filepath.Join(given, "custody")
	must(t, p.creds("decrypt", "--name=custody", sealed, unsealed))
	must(t, os.Chmod(unsealed, 0o400))
	k, err := source(t, dir, "credential/custody", env).Key(t.Context())
	must(t, err)
	signs(t, dir, k)
	must(t, os.Remove(unsealed))
	if _, err := source(t, dir, "credential/custody", env).Key(t.Context()); err == nil {
		t.Error("the key opens without its identity")
	}
	if newTPM(t).creds("decrypt", "--name=custody", sealed, unsealed) == nil {
		t.Error("another machine unseals the identity")
	}
	p.boot("a stranger's certificates")
	if p.creds("decrypt", "--name=custody", sealed, unsealed) == nil {
		t.Error("the identity is unsealed after another boot")
	}
	if _, err := os.Stat(unsealed); err == nil {
		t.Error("there is an identity nevertheless")
	}
}
