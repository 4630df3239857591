package sink_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/custody-project/custody/export/exporttest"
	"github.com/custody-project/custody/export/sink"
)

// TestOpen: accepted URLs, and refused ones with helpful errors.
func TestOpen(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("s3cret"), 0o600); err != nil {
		t.Fatal(err)
	}
	certs := exporttest.NewCerts(t)
	withToken := func(t *sink.Target) { t.TokenFile = token }
	insecure := func(t *sink.Target) { t.Insecure = true; t.TokenFile = token }
	none := func(*sink.Target) {}
	for _, c := range []struct {
		to     string
		change func(*sink.Target)
		err    string // part of the error; "" if it is accepted
	}{
		{"stdout:", none, ""},
		{"syslog+tls://log.example", none, ""},
		{"syslog+tls://log.example:6514", func(t *sink.Target) { t.CA, t.Cert, t.Key = certs.CA, certs.ClientCert, certs.ClientKey }, ""},
		{"syslog+tcp://127.0.0.1:514", none, ""},
		{"syslog+tcp://[::1]:514", none, ""},
		{"syslog+tcp://log.example:514", none, "plain text"},
		{"syslog+tcp://127.0.0.1.example:514", none, "plain text"},
		{"syslog+tcp://log.example:514", insecure, ""},
		{"syslog+tcp://localhost:514", func(t *sink.Target) { t.CA = certs.CA }, "has no TLS"},
		{"syslog+tls://log.example/path", none, "no path"},
		{"syslog+tls://log.example", func(t *sink.Target) { t.CA = token }, "no certificate"},
		{"syslog+tls://log.example", func(t *sink.Target) { t.Cert = certs.Cert }, "go together"},
		{"hec+https://splunk.example", withToken, ""},
		{"hec+https://splunk.example", none, "token_file"},
		{"hec+https://splunk.example?token=s3cret", withToken, "credential"},
		{"hec+https://:s3cret@splunk.example", withToken, "credential"},
		{"hec+https://user:s3cret%zz@splunk.example", withToken, "to: "},
		{"hec+https://splunk.example?chanel=1", withToken, "unknown parameter"},
		{"hec+http://splunk.example", withToken, "plain text"},
		{"hec+https://splunk.example", func(t *sink.Target) { t.TokenFile = token; t.Headers = map[string]string{"Authorization": "x"} }, "credential"},
		{"elastic+https://es.example/logs-custody-default", withToken, ""},
		{"elastic+https://es.example/proxy/logs-custody-default", withToken, ""},
		{"elastic+https://es.example", withToken, "data stream"},
		{"elastic+https://es.example/Logs", withToken, "data stream"},
		{"elastic+https://es.example/a", func(t *sink.Target) { t.TokenFile = token; t.User = "u" }, "not both"},
		{"elastic+http://es.example/a", none, "plain text"},
		{"otlp+grpcs://otel.example", none, ""},
		{"otlp+grpc://otel.example", none, "plain text"},
		{"otlp+grpc://localhost", none, ""},
		{"otlp+https://otel.example", none, ""},
		{"otlp+http://otel.example/v1/logs", none, "plain text"},
		{"tls+nats://a.example:4222,b.example:4222/custody.siem", none, ""},
		{"nats://a.example:4222/custody.siem", none, "plain text"},
		{"nats://127.0.0.1:4222,b.example:4222/custody.siem", none, "plain text"},
		{"nats://127.0.0.1:4222,u:s3cret@127.0.0.2:4222/custody.siem", none, "credential"},
		{"nats://127.0.0.1:4222", none, "subject"},
		{"nats://127.0.0.1:4222/a.>", none, "subject"},
		{"s3://bucket/prefix?endpoint=s3.example", func(t *sink.Target) { t.User, t.PasswordFile = "AKID", token }, ""},
		{"s3://bucket/prefix?endpoint=s3.example", func(t *sink.Target) { t.User = "AKID" }, "go together"},
		{"s3://bucket?endpoint=http://s3.example", none, "plain text"},
		{"s3://bucket?endpoint=http://127.0.0.1:9000&region=x", none, ""},
		{"s3://bucket?endpoint=https://u:s3cret@s3.example", none, "credential"},
		{"s3://bucket?endpoint=ftp://s3.example", none, "neither"},
		{"s3://bucket", none, "endpoint"},
		{"s3://bucket?endpoint=s3.example&secret=s3cret", none, "credential"},
		{"gopher://x", none, "names no sink"},
		{"", none, "names no sink"},
		{"file:", none, "path"},
		{"file://relative", none, "file:/PATH"},
		{"file:" + filepath.Join(t.TempDir(), "events.ndjson"), none, ""},
	} {
		target := sink.Target{Name: "siem", To: c.to}
		c.change(&target)
		s, err := sink.Open(t.Context(), target)
		if c.err == "" != (err == nil) || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %v, want %q", c.to, err, c.err)
		}
		if err != nil && strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: the credential stands in %q", c.to, err)
		}
		if err == nil {
			s.Close()
		}
	}
}

// TestHints: refusals name the remedy.
func TestHints(t *testing.T) {
	for _, to := range []string{"hec+https://u:p@h", "hec+http://h.example", "what:x"} {
		_, err := sink.Open(t.Context(), sink.Target{Name: "siem", To: to, TokenEnv: "X"})
		var hint interface{ Hint() string }
		if !errors.As(err, &hint) || hint.Hint() == "" {
			t.Errorf("%s: %v has no hint", to, err)
		}
	}
}

func TestTargetOfYAML(t *testing.T) {
	var target sink.Target
	text := `
name: splunk
to: hec+https://splunk.example:8088
format: ocsf
version: 1.3.0
token_file: /etc/custody/hec.token
kinds: [flow, dns]
min_severity: notice
observer: host
batch_bytes: 2MiB
timeout: 30s
`
	if err := yaml.UnmarshalWithOptions([]byte(text), &target, yaml.Strict()); err != nil {
		t.Fatal(err)
	}
	o, err := target.Options()
	if err != nil || o.Batch.Bytes != 2<<20 || o.Timeout.Seconds() != 30 || len(o.Filter.Kinds) != 2 || o.Filter.MinSeverity != 5 {
		t.Errorf("%+v, %v", o, err)
	}
	if f, err := target.Encoding(); err != nil || f.Name() != "ocsf" {
		t.Error(f, err)
	}
	for _, bad := range []sink.Target{{Kinds: []string{"flows"}}, {Observer: "me"}, {MinSeverity: "bad"}} {
		if _, err := bad.Options(); err == nil {
			t.Errorf("%+v was taken", bad)
		}
	}
	for _, bad := range [][2]string{{"xml", ""}, {"ecs", "1"}, {"ocsf", "7.7"}} {
		if _, err := sink.Format(bad[0], bad[1]); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
	if yaml.UnmarshalWithOptions([]byte("batch_bytes: many"), &target, yaml.Strict()) == nil {
		t.Error("a size that is none was taken")
	}
}
