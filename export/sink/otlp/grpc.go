package otlp

import (
	"context"
	"crypto/tls"
	"errors"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/custody-project/custody/export"
	"github.com/custody-project/custody/export/sink/peer"
)

// Options of a Sink. Addr or URL is required.
type Options struct {
	Addr    string      // gRPC: host and port
	URL     string      // HTTP: the endpoint for logs, such as https://HOST:4318/v1/logs
	TLS     *tls.Config // nil: plain text
	Token   peer.Secret // bearer
	Headers map[string]string
	Connect time.Duration // timeout of connecting, gRPC; 10 s
}

// bearer returns the value of the header authorization, "" for none.
func (o Options) bearer() (string, error) {
	if !o.Token.Set() {
		return "", nil
	}
	token, err := o.Token.Value()
	return "Bearer " + token, err
}

type overGRPC struct {
	o      Options
	conn   *grpc.ClientConn
	client collector.LogsServiceClient
}

// GRPC returns a sink, which connects when there is something to send.
func GRPC(o Options) (*Sink, error) {
	creds := insecure.NewCredentials()
	if o.TLS != nil {
		creds = credentials.NewTLS(o.TLS)
	}
	if o.Connect == 0 {
		o.Connect = 10 * time.Second
	}
	// Short: the exporter waits itself, with increasing delays.
	again := backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 2, Jitter: 0.2, MaxDelay: time.Second}
	conn, err := grpc.NewClient("dns:///"+o.Addr, grpc.WithTransportCredentials(creds), grpc.WithUserAgent("custody"),
		grpc.WithDisableRetry(), grpc.WithDisableServiceConfig(),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: again, MinConnectTimeout: o.Connect}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<20)))
	if err != nil {
		return nil, err
	}
	return &Sink{over: &overGRPC{o, conn, collector.NewLogsServiceClient(conn)}}, nil
}

func (g *overGRPC) export(ctx context.Context, req *collector.ExportLogsServiceRequest) (*collector.ExportLogsServiceResponse, error) {
	auth, err := g.o.bearer()
	if err != nil {
		return nil, err
	}
	for k, v := range g.o.Headers {
		ctx = metadata.AppendToOutgoingContext(ctx, k, v)
	}
	if auth != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", auth)
	}
	res, err := g.client.Export(ctx, req)
	return res, outcome(err)
}

// outcome maps a status. InvalidArgument concerns the data; ResourceExhausted without RetryInfo is
// final in the specification, and the status of a message that is too large.
func outcome(err error) error {
	if err == nil {
		return nil
	}
	s := status.Convert(err)
	var wait time.Duration
	asked := false
	for _, d := range s.Details() {
		if info, ok := d.(*errdetails.RetryInfo); ok {
			wait, asked = info.GetRetryDelay().AsDuration(), true
		}
	}
	if s.Code() == codes.InvalidArgument || s.Code() == codes.ResourceExhausted && !asked {
		return &export.Refused{Reason: s.Code().String() + ": " + cut(s.Message())}
	}
	return &export.Later{After: max(0, wait), Err: errors.New(s.Code().String() + ": " + cut(s.Message()))}
}

func cut(s string) string { return s[:min(len(s), 300)] }

// Close implements exporter.
func (g *overGRPC) Close() error { return g.conn.Close() }
