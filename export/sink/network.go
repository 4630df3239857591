package sink

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/custody-project/custody/export"
	"github.com/custody-project/custody/export/sink/elastic"
	"github.com/custody-project/custody/export/sink/hec"
	"github.com/custody-project/custody/export/sink/natsio"
	"github.com/custody-project/custody/export/sink/otlp"
	"github.com/custody-project/custody/export/sink/s3"
	"github.com/custody-project/custody/export/sink/syslog"
)

func openSyslog(t Target, u *url.URL) (export.Sink, error) {
	o := syslog.Options{MaxBytes: int(t.MaxMessage), Timeout: t.Timeout}
	port := "601"
	if u.Scheme == "syslog+tls" {
		port = "6514" // RFC 5425, section 4.1
	}
	o.Addr = withPort(u, port)
	var err error
	if o.TLS, err = secure(t, u, u.Scheme == "syslog+tls"); err != nil {
		return nil, err
	}
	return syslog.New(o), bare(u)
}

// bare refuses a path and parameters for schemes without them.
func bare(u *url.URL) error {
	if u.Path != "" && u.Path != "/" {
		return fmt.Errorf("to: %s has no path", u.Scheme)
	}
	return queryOnly(u)
}

// base returns the URL of an HTTP server for a scheme like hec+https.
func base(u *url.URL, port string) (server string, hasTLS bool) {
	_, scheme, _ := strings.Cut(u.Scheme, "+")
	return scheme + "://" + withPort(u, port), scheme == "https"
}

func openHEC(t Target, u *url.URL) (export.Sink, error) {
	o := hec.Options{Token: t.token(), Headers: t.Headers, Index: t.Index, SourceType: t.SourceType, NoAck: t.NoAck}
	if !o.Token.Set() {
		return nil, errors.New("hec needs token_file or token_env")
	}
	if o.SourceType == "" {
		o.SourceType = "custody:" + t.format()
	}
	server, hasTLS := base(u, "8088")
	o.URL = server + strings.TrimSuffix(u.Path, "/")
	var err error
	if o.TLS, err = secure(t, u, hasTLS); err != nil {
		return nil, err
	}
	return hec.New(o), errors.Join(t.checkHeaders(), queryOnly(u))
}

func openElastic(t Target, u *url.URL) (export.Sink, error) {
	server, hasTLS := base(u, "9200")
	path := strings.Trim(u.Path, "/")
	before, stream := "", path
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		before, stream = "/"+path[:i], path[i+1:]
	}
	if stream == "" {
		return nil, fmt.Errorf("to: name a data stream, like %s/logs-custody-default", strings.TrimSuffix(t.To, "/"))
	}
	o := elastic.Options{URL: server + before, Stream: stream, APIKey: t.token(), User: t.User, Password: t.password(), Headers: t.Headers}
	var err error
	if o.TLS, err = secure(t, u, hasTLS); err != nil {
		return nil, err
	}
	s, err := elastic.New(o)
	if err = errors.Join(err, t.checkHeaders(), queryOnly(u)); err != nil {
		return nil, err
	}
	return s, nil
}

func openGRPC(t Target, u *url.URL) (export.Sink, error) {
	o := otlp.Options{Addr: withPort(u, "4317"), Token: t.token(), Headers: t.Headers}
	var err error
	if o.TLS, err = secure(t, u, u.Scheme == "otlp+grpcs"); err != nil {
		return nil, err
	}
	if err := errors.Join(t.checkHeaders(), bare(u)); err != nil {
		return nil, err
	}
	return otlp.GRPC(o)
}

func openOTLP(t Target, u *url.URL) (export.Sink, error) {
	server, hasTLS := base(u, "4318")
	path := u.Path
	if strings.Trim(path, "/") == "" {
		path = "/v1/logs"
	}
	o := otlp.Options{URL: server + path, Token: t.token(), Headers: t.Headers}
	var err error
	if o.TLS, err = secure(t, u, hasTLS); err != nil {
		return nil, err
	}
	return otlp.HTTP(o), errors.Join(t.checkHeaders(), queryOnly(u))
}

func openNATS(t Target, u *url.URL) (export.Sink, error) {
	hasTLS := u.Scheme != "nats"
	o := natsio.Options{Subject: strings.Trim(u.Path, "/"), Plain: t.NoAck, Token: t.token(), User: t.User, Password: t.password(),
		Creds: t.CredsFile, NKey: t.NKeyFile}
	if o.Subject == "" {
		return nil, fmt.Errorf("to: name a subject, like %s/custody.siem", strings.TrimSuffix(t.To, "/"))
	}
	var err error
	if o.TLS, err = secure(t, u, hasTLS); err != nil {
		return nil, err
	}
	scheme := "nats://"
	if hasTLS {
		scheme = "tls://"
	}
	for host := range strings.SplitSeq(u.Host, ",") {
		if o.URL != "" {
			o.URL += ","
		}
		o.URL += scheme + host
	}
	if err := queryOnly(u); err != nil {
		return nil, err
	}
	return natsio.New(o)
}

func openS3(t Target, u *url.URL) (export.Sink, error) {
	o, err := t.s3(u)
	if err != nil {
		return nil, err
	}
	return s3.New(o)
}

// S3 returns the bucket, the server and the credentials of a target in S3.
func (t Target) S3() (s3.Options, error) {
	u, err := parse(t)
	if err == nil && u.Scheme != "s3" {
		err = &SchemeError{t.To}
	}
	if err != nil {
		return s3.Options{}, err
	}
	return t.s3(u)
}

func (t Target) s3(u *url.URL) (o s3.Options, err error) {
	q := u.Query()
	o = s3.Options{Bucket: u.Host, Prefix: strings.Trim(u.Path, "/"), Region: q.Get("region"), Access: t.User, Secret: t.password()}
	endpoint := q.Get("endpoint")
	scheme, host, ok := strings.Cut(endpoint, "://")
	if !ok {
		scheme, host = "https", endpoint
	}
	if endpoint == "" {
		return o, errors.New("to: s3 needs ?endpoint=HOST, as s3.eu-central-1.amazonaws.com")
	}
	if scheme != "https" && scheme != "http" {
		return o, fmt.Errorf("to: the endpoint's scheme %.20q is neither https nor http", scheme)
	}
	if strings.Contains(host, "@") {
		return o, &CredentialError{t.Name}
	}
	o.Endpoint = strings.TrimSuffix(host, "/")
	if o.TLS, err = secure(t, &url.URL{Scheme: "s3 over " + scheme, Host: o.Endpoint}, scheme == "https"); err != nil {
		return o, err
	}
	if err := queryOnly(u, "endpoint", "region"); err != nil {
		return o, err
	}
	if (o.Access == "") != !o.Secret.Set() {
		return o, errors.New("user (the access key) and password_file or password_env (the secret key) go together")
	}
	return o, nil
}

// checkHeaders refuses headers that carry credentials: those come from files or the environment.
func (t Target) checkHeaders() error {
	for k := range t.Headers {
		k = strings.ToLower(k)
		for _, word := range []string{"auth", "token", "api-key", "apikey", "cookie", "secret", "password"} {
			if strings.Contains(k, word) {
				return fmt.Errorf("headers: %.40q looks like a credential, which comes from token_file or token_env", k)
			}
		}
	}
	return nil
}
