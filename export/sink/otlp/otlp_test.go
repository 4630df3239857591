package otlp

import (
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/custody-project/custody/export"
	"github.com/custody-project/custody/export/exporttest"
	"github.com/custody-project/custody/export/sink/peer"
)

// receiver is the logs service, generated from the definition of OTLP, over gRPC and HTTP.
type receiver struct {
	collector.UnimplementedLogsServiceServer
	mu     sync.Mutex // guards the fields below
	ids    map[string]int
	bodies map[string]string
	calls  int
	fail   func(call int) error // of gRPC
	poison string               // an id that it rejects without naming it
	bad    []string
}

func (r *receiver) Export(ctx context.Context, req *collector.ExportLogsServiceRequest) (*collector.ExportLogsServiceResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls++
	if md, _ := metadata.FromIncomingContext(ctx); fmt.Sprint(md.Get("authorization")) != "[Bearer s3cret]" && md != nil {
		return nil, status.Error(codes.Unauthenticated, "who are you")
	}
	if r.fail != nil {
		if err := r.fail(r.calls); err != nil {
			return nil, err
		}
	}
	return r.take(req), nil
}

func (r *receiver) take(req *collector.ExportLogsServiceRequest) *collector.ExportLogsServiceResponse {
	res := &collector.ExportLogsServiceResponse{}
	for _, rl := range req.ResourceLogs {
		if a := rl.Resource.Attributes; len(a) < 2 || a[0].Key != "service.name" || a[0].Value.GetStringValue() != "custody" {
			r.bad = append(r.bad, fmt.Sprint(a))
		}
		for _, sl := range rl.ScopeLogs {
			for _, rec := range sl.LogRecords {
				id := rec.Attributes[0].Value.GetStringValue()
				if rec.Attributes[0].Key != "custody.id" || rec.TimeUnixNano == 0 || rec.SeverityNumber == 0 || rec.EventName == "" {
					r.bad = append(r.bad, rec.String())
				}
				if id == r.poison {
					res.PartialSuccess = &collector.ExportLogsPartialSuccess{RejectedLogRecords: 1, ErrorMessage: "one of them"}
					continue
				}
				r.ids[id]++
				r.bodies[id] = rec.Body.GetStringValue()
			}
		}
	}
	return res
}

func (r *receiver) got() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	ids := map[string]int{}
	for id, n := range r.ids {
		ids[id] = n
	}
	return ids
}

// ServeHTTP is the service over HTTP with protobuf.
func (r *receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	if q.Method != "POST" || q.URL.Path != "/v1/logs" || q.Header.Get("Content-Type") != "application/x-protobuf" || q.Header.Get("Authorization") != "Bearer s3cret" {
		w.WriteHeader(401)
		return
	}
	body := q.Body
	if q.Header.Get("Content-Encoding") == "gzip" {
		var err error
		if body, err = gzip.NewReader(q.Body); err != nil {
			w.WriteHeader(400)
			return
		}
	}
	b, err := io.ReadAll(body)
	req := &collector.ExportLogsServiceRequest{}
	if err != nil || proto.Unmarshal(b, req) != nil {
		w.WriteHeader(400)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	b, _ = proto.Marshal(r.take(req))
	w.Header().Set("Content-Type", "application/x-protobuf")
	w.Write(b)
}

func start(t *testing.T, r *receiver, creds ...grpc.ServerOption) (addr string, o Options) {
	t.Helper()
	r.ids, r.bodies = map[string]int{}, map[string]string{}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(creds...)
	collector.RegisterLogsServiceServer(s, r)
	done := make(chan struct{})
	go func() { s.Serve(l); close(done) }() // until Stop
	t.Cleanup(func() {
		s.Stop()
		<-done
		for _, bad := range r.bad {
			t.Error("the receiver got what is not as it should be:", bad)
		}
	})
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte("s3cret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return l.Addr().String(), Options{Addr: l.Addr().String(), Token: peer.Secret{File: path}}
}

func open(t *testing.T, o Options) *Sink {
	t.Helper()
	s, err := GRPC(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestFaultsGRPC(t *testing.T) {
	r := &receiver{}
	addr, o := start(t, r)
	exporttest.Faults(t, addr, func(addr string) export.Sink {
		o.Addr, o.Connect = addr, 100*time.Millisecond
		return open(t, o)
	}, r.got)
}

func TestFaultsHTTP(t *testing.T) {
	r := &receiver{}
	_, o := start(t, r)
	server := httptest.NewServer(r)
	defer server.Close()
	exporttest.Faults(t, server.Listener.Addr().String(), func(addr string) export.Sink {
		o.URL = "http://" + addr + "/v1/logs"
		return HTTP(o)
	}, r.got)
}

// TestStatus: the outcome of each status of gRPC.
func TestStatus(t *testing.T) {
	retry, err := status.New(codes.ResourceExhausted, "slow down").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(9 * time.Second)})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		err     error
		refused bool
		after   time.Duration
	}{
		{status.Error(codes.Unavailable, ""), false, 0}, {status.Error(codes.Aborted, ""), false, 0}, {status.Error(codes.DataLoss, ""), false, 0},
		{retry.Err(), false, 9 * time.Second}, {status.Error(codes.ResourceExhausted, ""), true, 0}, {status.Error(codes.InvalidArgument, ""), true, 0},
		{status.Error(codes.PermissionDenied, ""), false, 0}, {status.Error(codes.Unimplemented, ""), false, 0}, {status.Error(codes.Internal, ""), false, 0},
	} {
		r := &receiver{fail: func(int) error { return c.err }}
		_, o := start(t, r)
		s := open(t, o)
		err := s.Send(t.Context(), exporttest.Items("r-1", 2))
		var refused *export.Refused
		var later *export.Later
		if err == nil || errors.As(err, &refused) != c.refused || !c.refused && (!errors.As(err, &later) || later.After != c.after) {
			t.Errorf("%v: %v", c.err, err)
		}
		s.Close()
	}
}

// TestPartialSuccess: the one event that the receiver rejects is found, over both protocols, and the others arrive.
func TestPartialSuccess(t *testing.T) {
	for _, name := range []string{"grpc", "http"} {
		r := &receiver{poison: "r-1:77"}
		_, o := start(t, r)
		server := httptest.NewServer(r)
		o.URL = server.URL + "/v1/logs"
		s := HTTP(o)
		if name == "grpc" {
			s = open(t, o)
		}
		src := &exporttest.Source{}
		src.Add(exporttest.Run("acme", "r-1", 200, 200)...)
		x, err := export.Open(export.Options{Name: "siem", Dir: t.TempDir(), Source: src, Format: export.JSON{}, Sink: s})
		if err != nil {
			t.Fatal(err)
		}
		if err := x.CatchUp(t.Context()); err != nil {
			t.Fatal(err)
		}
		if st := x.Stats(); len(r.got()) != 199 || st.Dead != 1 || st.Sent != 199 {
			t.Errorf("%s: %d arrived, %+v", name, len(r.got()), st)
		}
		for l, err := range x.Dead().Letters() {
			if err != nil || l.ID != "r-1:77" {
				t.Errorf("%s: dead letter %+v, %v", name, l, err)
			}
		}
		x.Close()
		s.Close()
		server.Close()
	}
}

func TestTLS(t *testing.T) {
	certs := exporttest.NewCerts(t)
	r := &receiver{}
	_, o := start(t, r, grpc.Creds(credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{certs.Server}, ClientCAs: certs.Pool,
		ClientAuth: tls.RequireAndVerifyClientCert})))
	for _, good := range []bool{false, true} {
		o.TLS = certs.Client(t)
		if !good {
			o.TLS = exporttest.NewCerts(t).Client(t)
		}
		s := open(t, o)
		if err := s.Send(t.Context(), exporttest.Items("r-1", 2)); (err == nil) != good {
			t.Errorf("%v: %v", good, err)
		}
		s.Close()
	}
	for id, body := range r.bodies {
		if body == "" {
			t.Errorf("%s has no body", id)
		}
	}
	if len(r.got()) != 2 {
		t.Errorf("%v", r.got())
	}
}
