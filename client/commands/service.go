package commands

import (
	"fmt"
	"io"
	"os"

	"github.com/custody-project/custody/client"
)

// Service names a service and the token for it.
type Service struct {
	Host      string `env:"CUSTODY_URL" placeholder:"URL" help:"The address of the service, such as https://custody.example:8333."`
	TokenFile string `env:"CUSTODY_TOKEN_FILE" placeholder:"FILE" help:"The file with the token for the service (default: the token in $CUSTODY_TOKEN)."`
	CAFile    string `name:"ca-file" env:"CUSTODY_CA_FILE" placeholder:"FILE" help:"Trust only these certificates, in PEM, to issue the service's (default: those of the system)."`
	Tenant    string `placeholder:"NAME" help:"The tenant, if the token has more than one."`
}

// TokenEnv names the variable with the token.
const TokenEnv = "CUSTODY_TOKEN"

// The largest files with a token and with certificates, in bytes.
const (
	maxToken = 16 << 10 // a JWT can have some kilobytes
	maxRoots = 4 << 20
)

// client returns a client of the service.
func (s Service) client() (*client.Client, error) {
	if s.Host == "" {
		return nil, failure("give --host https://HOST:PORT, or set CUSTODY_URL", "there is no address of a service")
	}
	token := os.Getenv(TokenEnv)
	if s.TokenFile != "" {
		b, err := read(s.TokenFile, maxToken)
		if err != nil {
			return nil, err
		}
		token = string(b)
	}
	c, err := client.New(s.Host, token)
	if err != nil {
		return nil, err
	}
	c.Tenant = s.Tenant
	if s.CAFile != "" {
		pem, err := read(s.CAFile, maxRoots)
		if err != nil {
			return nil, err
		}
		if err := c.TrustOnly(pem); err != nil {
			return nil, fmt.Errorf("%s: %w", s.CAFile, err)
		}
	}
	return c, nil
}

// read reads a file of at most some bytes.
func read(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(b)) > limit {
		err = fmt.Errorf("%s is larger than %d bytes", path, limit)
	}
	return b, err
}
