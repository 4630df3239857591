// Command vault is a Vault server for Custody's tests: Vault's own core, request
// handler, token store, KV, transit, AppRole, JWT, Kubernetes and file audit, with storage
// in memory or in a directory. It is a separate module and no part of Custody.
//
// It initialises and unseals itself, prints one line of JSON when it is ready
// (address, token, unseal_key, ca), and ends on SIGTERM or when its standard input
// closes, so that it cannot outlive the test that started it. With -dir its state
// survives a kill.
//
// Besides "kv" it has one dynamic engine, "lease": a read of creds/NAME makes a user
// name and a password under a Vault lease, and users/ lists those whose lease has not
// ended.
package main

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/hashicorp/go-hclog"
	jwt "github.com/hashicorp/vault-plugin-auth-jwt"
	kubernetes "github.com/hashicorp/vault-plugin-auth-kubernetes"
	kv "github.com/hashicorp/vault-plugin-secrets-kv"
	"github.com/hashicorp/vault/audit"
	"github.com/hashicorp/vault/builtin/credential/approle"
	"github.com/hashicorp/vault/builtin/logical/transit"
	vaulthttp "github.com/hashicorp/vault/http"
	"github.com/hashicorp/vault/internalshared/configutil"
	"github.com/hashicorp/vault/sdk/logical"
	"github.com/hashicorp/vault/sdk/physical"
	"github.com/hashicorp/vault/sdk/physical/file"
	"github.com/hashicorp/vault/sdk/physical/inmem"
	"github.com/hashicorp/vault/vault"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "vault:", err)
		os.Exit(1)
	}
}

func run() error {
	listen := flag.String("listen", "127.0.0.1:0", "`address` to listen on")
	dir := flag.String("dir", "", "`directory` that keeps the storage and the unseal key (default: in memory)")
	secure := flag.Bool("tls", false, "serve TLS with a certificate made at the start")
	flag.Parse()

	core, err := newCore(*dir)
	if err != nil {
		return err
	}
	defer core.Shutdown()
	keys, err := open(core, *dir)
	if err != nil {
		return err
	}
	ln, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}
	scheme, ca := "http", ""
	if *secure {
		scheme = "https"
		if ln, ca, err = withTLS(ln); err != nil {
			return err
		}
	}
	return serve(core, ln, map[string]string{
		"address": scheme + "://" + ln.Addr().String(), "token": keys.Token, "unseal_key": keys.Unseal, "ca": ca,
	})
}

// serve prints that the server is ready, and serves until SIGTERM or the end of standard input.
func serve(core *vault.Core, ln net.Listener, ready map[string]string) error {
	srv := &http.Server{Handler: vaulthttp.Handler.Handler(&vault.HandlerProperties{
		Core: core, ListenerConfig: &configutil.Listener{},
	})}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	if err := json.NewEncoder(os.Stdout).Encode(ready); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	eof := make(chan struct{})
	go func() {
		io.Copy(io.Discard, os.Stdin)
		close(eof)
	}()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	case <-eof:
	}
	return srv.Close()
}

func newCore(dir string) (*vault.Core, error) {
	logger := hclog.New(&hclog.LoggerOptions{Name: "vault", Level: hclog.Warn})
	storage, err := newStorage(dir, logger)
	if err != nil {
		return nil, err
	}
	secretEngines := map[string]logical.Factory{"kv": kv.Factory, "transit": transit.Factory, "lease": leaseFactory}
	logins := map[string]logical.Factory{"approle": approle.Factory, "jwt": jwt.Factory, "kubernetes": kubernetes.Factory}
	return vault.NewCore(&vault.CoreConfig{
		Physical:           storage,
		LogicalBackends:    secretEngines,
		CredentialBackends: logins,
		AuditBackends:      map[string]audit.Factory{"file": audit.NewFileBackend},
		BuiltinRegistry:    registry{secretEngines, logins},
		DisableMlock:       true,
		Logger:             logger,
	})
}

func newStorage(dir string, logger hclog.Logger) (physical.Backend, error) {
	if dir == "" {
		return inmem.NewInmem(nil, logger)
	}
	return file.NewFileBackend(map[string]string{"path": filepath.Join(dir, "data")}, logger)
}

// keys are the root token and the unseal key of the first start, kept beside the storage for later starts.
type keys struct{ Token, Unseal string }

// open initialises a core whose storage is new, and unseals it.
func open(core *vault.Core, dir string) (keys, error) {
	ctx := context.Background()
	var k keys
	kept := filepath.Join(dir, "keys.json")
	known, err := core.Initialized(ctx)
	if err != nil {
		return k, err
	}
	if !known {
		one := &vault.SealConfig{SecretShares: 1, SecretThreshold: 1}
		r, err := core.Initialize(ctx, &vault.InitParams{BarrierConfig: one, RecoveryConfig: one})
		if err != nil {
			return k, err
		}
		k = keys{Token: r.RootToken, Unseal: hex.EncodeToString(r.SecretShares[0])}
		if dir != "" {
			text, _ := json.Marshal(k)
			if err := os.WriteFile(kept, text, 0o600); err != nil {
				return k, err
			}
		}
	} else {
		text, err := os.ReadFile(kept)
		if err != nil {
			return k, err
		}
		if err := json.Unmarshal(text, &k); err != nil {
			return k, err
		}
	}
	share, err := hex.DecodeString(k.Unseal)
	if err != nil {
		return k, err
	}
	if ok, err := core.Unseal(share); err != nil {
		return k, err
	} else if !ok {
		return k, errors.New("still sealed after its one key")
	}
	return k, nil
}
