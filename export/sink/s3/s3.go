// Package s3 is the sink for S3-compatible storage: one object of gzipped lines for each segment of a run.
//
//	PREFIX/TENANT/2026/01/02/RUN/FIRST-LAST.ndjson.gz
//
// The key depends only on the contents of the object, so that a repeat writes the same object again. The date is
// that of the object's first event, FIRST and LAST are seqs with 20 digits.
package s3

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/custody-project/custody/export"
	"github.com/custody-project/custody/export/sink/peer"
)

// Options of a Sink. Endpoint and Bucket are required.
type Options struct {
	Endpoint string // host and port
	Bucket   string
	Prefix   string
	Region   string
	TLS      *tls.Config // nil: plain text
	Access   string      // key id; empty: from the environment, else requests are not signed
	Secret   peer.Secret
}

// Limits of one object; a larger segment is split at the same place each time.
const (
	objectItems = 1 << 20
	objectBytes = 32 << 20
)

// Sink writes to one bucket.
type Sink struct {
	o      Options
	client *minio.Client
	http   *http.Transport
}

// New returns a sink, which connects when there is something to send.
func New(o Options) (*Sink, error) {
	h := &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: o.TLS, TLSHandshakeTimeout: 10 * time.Second,
		ResponseHeaderTimeout: time.Minute, IdleConnTimeout: 90 * time.Second, MaxResponseHeaderBytes: 64 << 10, DisableCompression: true}
	if o.Region == "" {
		o.Region = "us-east-1" // avoids a request for the region
	}
	client, err := minio.New(o.Endpoint, &minio.Options{Creds: o.credentials(), Secure: o.TLS != nil, Transport: h, Region: o.Region, MaxRetries: 1})
	if err != nil {
		return nil, err
	}
	return &Sink{o, client, h}, nil
}

// credentials are read when they are needed. A cloud's metadata service is not used.
func (o Options) credentials() *credentials.Credentials {
	if o.Access != "" {
		return credentials.New(&fromFile{o: o})
	}
	return credentials.NewChainCredentials([]credentials.Provider{&credentials.EnvAWS{}, &credentials.FileAWSCredentials{}})
}

// fromFile provides the credentials of Options.
type fromFile struct{ o Options }

// RetrieveWithCredContext implements credentials.Provider.
func (f *fromFile) RetrieveWithCredContext(*credentials.CredContext) (credentials.Value, error) {
	return f.Retrieve()
}

// Retrieve implements credentials.Provider.
func (f *fromFile) Retrieve() (credentials.Value, error) {
	secret, err := f.o.Secret.Value()
	return credentials.Value{AccessKeyID: f.o.Access, SecretAccessKey: secret, SignerType: credentials.SignatureV4}, err
}

// IsExpired implements credentials.Provider: the file is read for each request, since it can be renewed.
func (f *fromFile) IsExpired() bool { return true }

// Batch implements export.Batcher.
func (s *Sink) Batch() export.Batch {
	return export.Batch{Items: objectItems, Bytes: objectBytes, Segments: true}
}

// Send implements export.Sink.
func (s *Sink) Send(ctx context.Context, items []export.Item) error {
	for len(items) > 0 {
		n := 1
		for n < len(items) && together(items[0], items[n]) {
			n++
		}
		if err := s.put(ctx, items[:n]); err != nil {
			return err
		}
		items = items[n:]
	}
	return nil
}

func together(a, b export.Item) bool { return a.Tenant == b.Tenant && a.Run == b.Run }

// put writes one object.
func (s *Sink) put(ctx context.Context, items []export.Item) error {
	var b bytes.Buffer
	z := gzip.NewWriter(&b) // without a time or a name in its header: the same events give the same bytes
	for _, i := range items {
		z.Write(i.Data) // to memory: never fails
		z.Write([]byte{'\n'})
	}
	z.Close()
	_, err := s.client.PutObject(ctx, s.o.Bucket, s.key(items), &b, int64(b.Len()), minio.PutObjectOptions{
		ContentType: "application/x-ndjson", ContentEncoding: "gzip", SendContentMd5: true, DisableMultipart: true})
	return outcome(err)
}

// key names an object by its contents.
func (s *Sink) key(items []export.Item) string {
	first, last := items[0], items[len(items)-1]
	return path.Join(s.o.Prefix, name(first.Tenant), first.Time.UTC().Format("2006/01/02"), name(first.Run),
		fmt.Sprintf("%020d-%020d.ndjson.gz", first.Seq, last.Seq))
}

// name makes one part of a key; "_" if it is empty. A name that must be changed gets a hash as suffix, so that it
// remains unique.
func name(s string) string {
	clean := strings.Map(func(r rune) rune {
		if r <= ' ' || r > '~' || strings.ContainsRune(`/\?*"<>|`, r) {
			return '_'
		}
		return r
	}, s)
	switch {
	case s == "":
		return "_"
	case clean == s && strings.Trim(s, ".") != "" && s != "_":
		return s
	}
	return fmt.Sprintf("%s-%x", strings.Trim(clean, "."), sha256.Sum256([]byte(s)))[:len(strings.Trim(clean, "."))+17]
}

// outcome maps an error. Only an object that is too large concerns the events; a wrong key, bucket or permission
// must be repaired by an administrator.
func outcome(err error) error {
	var res minio.ErrorResponse
	switch {
	case err == nil:
		return nil
	case errors.As(err, &res) && res.Code == "EntityTooLarge":
		return &export.Refused{Reason: res.Code + ": " + res.Message}
	}
	return fmt.Errorf("put object: %w", err)
}

// Close implements export.Sink.
func (s *Sink) Close() error {
	s.http.CloseIdleConnections()
	return nil
}
