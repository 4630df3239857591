package vault

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// The methods of logging in to Vault.
const (
	LoginToken      = "token"
	LoginAppRole    = "approle"
	LoginKubernetes = "kubernetes"
	LoginJWT        = "jwt"
)

const (
	unixScheme       = "unix://"
	defaultAddress   = "https://127.0.0.1:8200"
	defaultTokenRole = "custody"
	kubernetesToken  = "/var/run/secrets/kubernetes.io/serviceaccount/token"
)

// Config has Vault's address and the settings of the login.
type Config struct {
	Address   string // https://HOST:PORT, unix://PATH, or http:// for this machine
	Namespace string
	// Server certificates are checked against CACert (a file) or CAPath (a directory), or else the system's roots;
	// ServerName must be in the certificate if it differs from Address's host.
	CACert, CAPath, ServerName string
	ClientCert, ClientKey      string // files, for a Vault that requires a client certificate

	Login        string // one of the Login constants
	Mount        string // of the login method; the method's name if empty
	Token        string // for LoginToken
	TokenFile    string // for LoginToken, if Token is empty
	Role         string // for LoginKubernetes and LoginJWT
	RoleID       string // for LoginAppRole
	SecretIDFile string // for LoginAppRole, unless the role needs none
	JWTFile      string // for LoginKubernetes and LoginJWT

	// TokenRole is the token role that makes the parents of steps' tokens. Empty: custody, if it exists; a sufficiently
	// privileged login works without a role.
	TokenRole string
	Audit     string // Vault's file audit log, if it is on this machine; empty: misuse is not detected
	Dir       string // for notes on live tokens at Vault; shared by all runs

	Place Place `json:"-"` // nil: that of this process, see Here
}

// FromEnv reads the environment variables of Vault's own clients and of docs/vault.md. It does not set Dir.
func FromEnv(getenv func(string) string) (Config, error) {
	c := Config{
		Address: or(getenv("VAULT_ADDR"), defaultAddress), Namespace: getenv("VAULT_NAMESPACE"),
		CACert: getenv("VAULT_CACERT"), CAPath: getenv("VAULT_CAPATH"), ServerName: getenv("VAULT_TLS_SERVER_NAME"),
		ClientCert: getenv("VAULT_CLIENT_CERT"), ClientKey: getenv("VAULT_CLIENT_KEY"),
		Login: or(getenv("CUSTODY_VAULT_LOGIN"), LoginToken), Mount: getenv("CUSTODY_VAULT_MOUNT"),
		Token: getenv("VAULT_TOKEN"),
		Role:  getenv("CUSTODY_VAULT_ROLE"), RoleID: getenv("CUSTODY_VAULT_ROLE_ID"),
		SecretIDFile: getenv("CUSTODY_VAULT_SECRET_ID_FILE"), JWTFile: getenv("CUSTODY_VAULT_JWT_FILE"),
		TokenRole: getenv("CUSTODY_VAULT_TOKEN_ROLE"), Audit: getenv("CUSTODY_VAULT_AUDIT"),
	}
	if home := getenv("HOME"); filepath.IsAbs(home) { // a relative HOME could name a file of the project
		c.TokenFile = filepath.Join(home, ".vault-token")
	}
	if skip := getenv("VAULT_SKIP_VERIFY"); skip != "" {
		if on, err := strconv.ParseBool(skip); err != nil || on {
			return c, errors.New("VAULT_SKIP_VERIFY is set, and custody does not connect to a Vault that it cannot verify: unset it, and set VAULT_CACERT to the certificate of Vault's authority")
		}
	}
	return c, c.check()
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// check checks the configuration without a call to Vault.
func (c Config) check() error {
	if err := checkAddress(c.Address); err != nil {
		return err
	}
	if (c.ClientCert == "") != (c.ClientKey == "") {
		return errors.New("a client certificate needs both VAULT_CLIENT_CERT and VAULT_CLIENT_KEY")
	}
	switch c.Login {
	case LoginToken:
		return nil
	case LoginAppRole:
		if c.RoleID == "" {
			return errors.New("the login with AppRole needs CUSTODY_VAULT_ROLE_ID")
		}
		return nil
	case LoginKubernetes, LoginJWT:
		if c.Role == "" {
			return fmt.Errorf("the login with %s needs CUSTODY_VAULT_ROLE", c.Login)
		}
		if c.Login == LoginJWT && c.JWTFile == "" {
			return errors.New("the login with jwt needs CUSTODY_VAULT_JWT_FILE")
		}
		return nil
	}
	return fmt.Errorf("CUSTODY_VAULT_LOGIN is %q: it can be token, approle, kubernetes or jwt", c.Login)
}

// checkAddress returns an error if tokens and secrets would be sent over a network unencrypted.
func checkAddress(address string) error {
	u, err := url.Parse(address)
	if err != nil { // its text contains the address, which may contain a password
		return errors.New("VAULT_ADDR is not an address: write https://HOST:PORT")
	}
	switch {
	case u.User != nil:
		return errors.New("VAULT_ADDR contains a user, which Vault does not support: write https://HOST:PORT")
	case u.Scheme == "unix" && u.Path != "", u.Scheme == "https" && u.Host != "":
		return nil
	case u.Scheme == "http" && u.Host != "":
		if ip := net.ParseIP(u.Hostname()); u.Hostname() == "localhost" || ip != nil && ip.IsLoopback() {
			return nil
		}
		return fmt.Errorf("VAULT_ADDR is %s: secrets would cross the network unencrypted; write https:// (http:// works only for this machine)", address)
	}
	return errors.New("VAULT_ADDR is not an address: write https://HOST:PORT")
}

// maxCredential bounds the size of a file with a login credential.
const maxCredential = 64 << 10

// readSecret reads a file that only its owner can read; anyMode allows other modes, for files that the platform
// provides.
func readSecret(path string, anyMode bool) (string, error) {
	// Without O_NONBLOCK, opening a FIFO would wait for a writer.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return "", err
	case !info.Mode().IsRegular():
		return "", fmt.Errorf("%s is not a regular file", path)
	case !anyMode && info.Mode().Perm()&0o077 != 0:
		return "", fmt.Errorf("%s has mode %04o and can be read by other users than its owner: chmod 600 %s", path, info.Mode().Perm(), path)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxCredential+1))
	if err != nil {
		return "", err
	}
	s := strings.TrimSpace(string(text))
	if s == "" || len(s) > maxCredential {
		return "", fmt.Errorf("%s contains no credential", path)
	}
	return s, nil
}
