// Package s3 keeps the objects of an archive in a bucket of an S3-compatible storage with conditional writes.
package s3

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/custody-project/custody/state/archive"
)

// Options of a Bucket. Endpoint and Bucket are required.
type Options struct {
	Endpoint string // host and port
	Bucket   string
	Prefix   string // of all names; another archive has another one
	Region   string
	TLS      *tls.Config            // nil: plain text
	Access   string                 // key id; empty: from the environment
	Secret   func() (string, error) // called for each request, since the secret can be renewed
	Stall    time.Duration          // without any byte, after which a connection is given up; 0: 2 minutes
	Retries  int                    // of a request that the storage answers with 503 or not at all; 0: 5
}

// Limits.
const (
	partSize = 32 << 20 // of an upload; an object has at most maxParts of them
	maxParts = 10_000
	maxPut   = 12 * time.Hour // of an upload, below archive.Config.Abandoned
)

// Bucket is the objects below a prefix of a bucket.
type Bucket struct {
	o      Options
	client *minio.Core
	http   *http.Transport
}

var _ archive.Objects = (*Bucket)(nil)

// New returns a Bucket, which connects when it is used.
func New(o Options) (*Bucket, error) {
	if o.Bucket == "" || o.Access != "" && o.Secret == nil {
		return nil, errors.New("an archive in S3 needs a bucket, and with a key ID its secret")
	}
	if o.Stall == 0 {
		o.Stall = 2 * time.Minute
	}
	if o.Retries == 0 {
		o.Retries = 5
	}
	if o.Region == "" {
		o.Region = "us-east-1" // avoids a request for the region
	}
	if o.Prefix = strings.Trim(o.Prefix, "/"); o.Prefix != "" {
		o.Prefix += "/"
	}
	h := &http.Transport{Proxy: http.ProxyFromEnvironment, DialContext: stalling(o.Stall), TLSClientConfig: o.TLS, TLSHandshakeTimeout: 10 * time.Second,
		ResponseHeaderTimeout: o.Stall, IdleConnTimeout: o.Stall / 2, MaxResponseHeaderBytes: 64 << 10, DisableCompression: true}
	client, err := minio.NewCore(o.Endpoint, &minio.Options{Creds: o.credentials(), Secure: o.TLS != nil, Transport: h, Region: o.Region, MaxRetries: o.Retries})
	if err != nil {
		return nil, err
	}
	return &Bucket{o, client, h}, nil
}

// Close ends idle connections.
func (b *Bucket) Close() error {
	b.http.CloseIdleConnections()
	return nil
}

// credentials are read when they are needed. A cloud's metadata service is not used.
func (o Options) credentials() *credentials.Credentials {
	if o.Access != "" {
		return credentials.New(provider{o})
	}
	return credentials.NewChainCredentials([]credentials.Provider{&credentials.EnvAWS{}, &credentials.FileAWSCredentials{}})
}

// provider provides the credentials of Options.
type provider struct{ Options }

// RetrieveWithCredContext implements credentials.Provider.
func (p provider) RetrieveWithCredContext(*credentials.CredContext) (credentials.Value, error) {
	return p.Retrieve()
}

// Retrieve implements credentials.Provider.
func (p provider) Retrieve() (credentials.Value, error) {
	secret, err := p.Secret()
	return credentials.Value{AccessKeyID: p.Access, SecretAccessKey: secret, SignerType: credentials.SignatureV4}, err
}

// IsExpired implements credentials.Provider.
func (p provider) IsExpired() bool { return true }

// stalling returns a dial function for connections that fail when no byte is read or written for a time.
func stalling(limit time.Duration) func(context.Context, string, string) (net.Conn, error) {
	dial := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial.DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &conn{c, limit}, nil
	}
}

// conn extends its deadline, which holds for reads and writes, with each of them.
type conn struct {
	net.Conn
	limit time.Duration
}

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	c.SetDeadline(time.Now().Add(c.limit)) // if it fails, so does the read
	return c.Conn.Read(p)
}

// Write implements net.Conn. A large write is split, so that a slow one is not taken for none.
func (c *conn) Write(p []byte) (n int, err error) {
	for n < len(p) && err == nil {
		var wrote int
		c.SetDeadline(time.Now().Add(c.limit))
		wrote, err = c.Conn.Write(p[n:min(len(p), n+64<<10)])
		n += wrote
	}
	return n, err
}

// Get implements archive.Objects.
func (b *Bucket) Get(ctx context.Context, name string) (io.ReadCloser, int64, error) {
	r, info, _, err := b.client.GetObject(ctx, b.o.Bucket, b.o.Prefix+name, minio.GetObjectOptions{})
	return r, info.Size, outcome("get", err)
}

// Stat implements archive.Objects.
func (b *Bucket) Stat(ctx context.Context, name string) (archive.Object, error) {
	info, err := b.client.StatObject(ctx, b.o.Bucket, b.o.Prefix+name, minio.StatObjectOptions{})
	return archive.Object{Name: name, Size: info.Size, Stored: info.LastModified}, outcome("stat", err)
}

// List implements archive.Objects.
func (b *Bucket) List(ctx context.Context, prefix string, f func(archive.Object) error) error {
	for o := range b.client.ListObjectsIter(ctx, b.o.Bucket, minio.ListObjectsOptions{Prefix: b.o.Prefix + prefix, Recursive: true}) {
		if o.Err != nil {
			return outcome("list", o.Err)
		}
		if err := f(archive.Object{Name: strings.TrimPrefix(o.Key, b.o.Prefix), Size: o.Size, Stored: o.LastModified}); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// outcome maps an error. The errors of the library contain no credential.
func outcome(what string, err error) error {
	var res minio.ErrorResponse
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &res):
	case res.StatusCode == http.StatusPreconditionFailed || res.Code == "PreconditionFailed":
		return archive.ErrExists
	case res.Code == "NotImplemented" || res.StatusCode == http.StatusNotImplemented:
		return fmt.Errorf("%w: it does not implement conditional writes (If-None-Match), or uploads in parts: %w", archive.ErrUnsafe, err)
	case res.Code == "NoSuchKey":
		return archive.ErrNotFound
	}
	return fmt.Errorf("%s object: %w", what, err)
}
