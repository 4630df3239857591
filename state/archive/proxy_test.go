package archive_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/custody-project/custody/state/archive"
	"github.com/custody-project/custody/state/archive/s3"
)

func (s *server) client(t testing.TB) *minio.Client {
	t.Helper()
	c, err := minio.New(s.addr, &minio.Options{Creds: credentials.NewStaticV4("AKIDTEST", secret, ""), Region: "us-east-1"})
	must(t, err)
	return c
}

func (s *server) keepVersions(t testing.TB) {
	t.Helper()
	must(t, s.client(t).EnableVersioning(t.Context(), bucket))
}

// spoil replaces an object as another program does, removes it so that its versions stay, and begins an upload.
func (s *server) spoil(t testing.TB, object string) {
	t.Helper()
	c := s.client(t)
	_, err := c.PutObject(t.Context(), bucket, object, strings.NewReader("x"), 1, minio.PutObjectOptions{})
	must(t, err)
	must(t, c.RemoveObject(t.Context(), bucket, object, minio.RemoveObjectOptions{}))
	_, err = minio.Core{Client: c}.NewMultipartUpload(t.Context(), bucket, object, minio.PutObjectOptions{})
	must(t, err)
}

// fault changes what happens to a request. It reports whether it has answered it.
type fault func(w http.ResponseWriter, r *http.Request, next http.Handler) bool

// proxy forwards to a server, and has a fault.
type proxy struct {
	*httptest.Server
	fault atomic.Pointer[fault]
}

func (s *server) proxy(t testing.TB) *proxy {
	t.Helper()
	forward := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: s.addr})
	forward.ErrorLog = nil
	p := &proxy{}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f := p.fault.Load(); f == nil || !(*f)(w, r, forward) {
			forward.ServeHTTP(w, r)
		}
	}))
	p.Config.ErrorLog = nil
	t.Cleanup(p.Close)
	return p
}

func (p *proxy) set(f fault) { p.fault.Store(&f) }

// bucket is that of the server behind the proxy.
func (p *proxy) bucket(t testing.TB, s *server) *s3.Bucket {
	o := s.options()
	o.Endpoint, o.Stall, o.Retries = p.Listener.Addr().String(), 500*time.Millisecond, 4
	return newBucket(t, o)
}

// isObject reports whether a request reads an object.
func isObject(r *http.Request) bool {
	return r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, ".snapshot")
}

// unavailable answers 503.
func unavailable(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(http.StatusServiceUnavailable)
	io.WriteString(w, "<Error><Code>SlowDown</Code><Message>reduce your request rate</Message></Error>")
}

// changed answers with the object of the server after a change.
func changed(change func(body []byte) []byte) fault {
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) bool {
		if !isObject(r) {
			return false
		}
		rec := httptest.NewRecorder()
		next.ServeHTTP(rec, r)
		body := rec.Body.Bytes()
		for name, values := range rec.Header() {
			w.Header()[name] = values
		}
		if now := change(body); len(now) >= len(body) {
			w.Header().Set("Content-Length", fmt.Sprint(len(now)))
			w.WriteHeader(rec.Code)
			w.Write(now)
		} else {
			w.WriteHeader(rec.Code) // the length of the object, and fewer bytes
			w.Write(now)
		}
		return true
	}
}

func flip(at float64) fault {
	return changed(func(b []byte) []byte {
		if len(b) > 0 {
			b[int(at*float64(len(b)-1))] ^= 1
		}
		return b
	})
}

func cut(to float64) fault {
	return changed(func(b []byte) []byte { return b[:int(to*float64(len(b)))] })
}

// shorter answers with a valid response of half the object.
func shorter(w http.ResponseWriter, r *http.Request, next http.Handler) bool {
	if !isObject(r) {
		return false
	}
	rec := httptest.NewRecorder()
	next.ServeHTTP(rec, r)
	for name, values := range rec.Header() {
		w.Header()[name] = values
	}
	w.Header().Set("Content-Length", fmt.Sprint(rec.Body.Len()/2))
	w.WriteHeader(rec.Code)
	w.Write(rec.Body.Bytes()[:rec.Body.Len()/2])
	return true
}

// hang does not answer.
func hang(_ http.ResponseWriter, r *http.Request, _ http.Handler) bool {
	select {
	case <-r.Context().Done():
	case <-time.After(3 * time.Second):
	}
	return true
}

// TestFetchFaults: a storage that is away, slow, busy, or returns other bytes. Each is an error, leaves nothing, and a later fetch succeeds.
func TestFetchFaults(t *testing.T) {
	s := start(t, false)
	p := s.proxy(t)
	a, one, two := open(t, p.bucket(t, s), key(t)), newHost(t, "host-1"), newHost(t, "host-2")
	_, err := one.archive(t, a, one.pause(t, large(1)))
	must(t, err)
	long := changed(func(b []byte) []byte { return append(b, 'x') })
	for name, c := range map[string]struct {
		fault   fault
		damaged bool
	}{
		"busy":                {func(w http.ResponseWriter, _ *http.Request, _ http.Handler) bool { unavailable(w); return true }, false},
		"no answer":           {hang, false},
		"the first byte":      {flip(0), true},
		"a byte":              {flip(0.5), true},
		"a byte of the sum":   {flip(1), true},
		"cut off":             {cut(0.5), true},
		"nothing of it":       {cut(0), true},
		"half of it":          {shorter, true},
		"too much":            {long, true},
		"stops in the middle": {stopping, false},
	} {
		p.set(c.fault)
		begun := time.Now()
		_, err := a.Fetch(t.Context(), two.Store, binding, two.name)
		if err == nil || errors.Is(err, archive.ErrDamaged) != c.damaged || errors.Is(err, archive.ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
		if took := time.Since(begun); took > 15*time.Second {
			t.Errorf("%s: it took %v", name, took)
		}
		if got := two.names(t); len(got) > 0 {
			t.Errorf("%s: host-2 has %q", name, got)
		}
		p.fault.Store(nil)
	}
	_, err = a.Fetch(t.Context(), two.Store, binding, two.name)
	must(t, err)
	if m, d := two.resume(t); m != "basechanged" || d != large(1) {
		t.Error("the sandbox differs")
	}
	p.set(hang)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := a.Fetch(ctx, two.Store, binding, two.name); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the caller's deadline: %v", err)
	}
	p.CloseClientConnections()
	p.Close()
	var away net.Error
	if _, err := a.Fetch(t.Context(), two.Store, binding, two.name); !errors.As(err, &away) {
		t.Errorf("away: %v", err)
	}
}

// stopping sends half of the object, and then nothing.
func stopping(w http.ResponseWriter, r *http.Request, next http.Handler) bool {
	if !isObject(r) {
		return false
	}
	rec := httptest.NewRecorder()
	next.ServeHTTP(rec, r)
	w.Header().Set("Content-Length", fmt.Sprint(rec.Body.Len()))
	w.WriteHeader(rec.Code)
	w.Write(rec.Body.Bytes()[:rec.Body.Len()/2])
	http.NewResponseController(w).Flush()
	return hang(w, r, next)
}

// TestPutFaults: an upload that fails, or cannot be verified, leaves the local snapshot and no archived one. A later one succeeds.
func TestPutFaults(t *testing.T) {
	s := start(t, false)
	p := s.proxy(t)
	b := p.bucket(t, s)
	a, one, two := open(t, b, key(t)), newHost(t, "host-1"), newHost(t, "host-2")
	bases := one.pause(t, large(1))
	part := func(f fault) fault {
		return func(w http.ResponseWriter, r *http.Request, next http.Handler) bool {
			return r.Method == http.MethodPut && f(w, r, next)
		}
	}
	busy := func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		io.Copy(io.Discard, r.Body)
		unavailable(w)
		return true
	}
	for name, c := range map[string]struct {
		fault   fault
		damaged bool
	}{
		"busy": {part(busy), false},
		"the last request is answered with 503": {func(w http.ResponseWriter, r *http.Request, next http.Handler) bool {
			return r.Method == http.MethodPost && r.URL.Query().Has("uploadId") && busy(w, r, next)
		}, false},
		"no answer": {part(hang), false},
		"other bytes arrive": {part(func(w http.ResponseWriter, r *http.Request, next http.Handler) bool {
			body, _ := io.ReadAll(r.Body)
			body[len(body)/2] ^= 1
			r.Body = io.NopCloser(strings.NewReader(string(body)))
			return false
		}), false},
		"other bytes are read": {flip(0.5), true},
		"fewer bytes are read": {shorter, true},
	} {
		p.set(c.fault)
		_, err := one.archive(t, a, bases)
		if err == nil || errors.Is(err, archive.ErrDamaged) != c.damaged {
			t.Errorf("%s: %v", name, err)
		}
		p.fault.Store(nil)
		if got := one.names(t); len(got) != 1 {
			t.Errorf("%s: host-1 has %q", name, got)
		}
		if items, err := a.List(t.Context(), "acme"); err != nil || len(items) > 0 {
			t.Errorf("%s: the archive has %+v, %v", name, items, err)
		}
	}
	var requests, lost atomic.Int32 // each third one is answered with 503, and the answer to the one that completes the upload is lost
	p.set(func(w http.ResponseWriter, r *http.Request, next http.Handler) bool {
		if requests.Add(1)%3 == 0 {
			return busy(w, r, next)
		}
		if r.Header.Get("If-None-Match") != "" && lost.Add(1) == 1 {
			next.ServeHTTP(httptest.NewRecorder(), r)
			return busy(w, r, next)
		}
		return false
	})
	_, err := one.archive(t, a, bases)
	must(t, err)
	if requests.Load() < 5 || lost.Load() < 1 {
		t.Errorf("there were %d requests", requests.Load())
	}
	p.fault.Store(nil)
	_, err = a.Fetch(t.Context(), two.Store, binding, two.name)
	must(t, err)
	if _, d := two.resume(t); d != large(1) {
		t.Error("the device differs")
	}
}

// TestProbe: storage without conditional writes, or that returns something else, is refused.
func TestProbe(t *testing.T) {
	s := start(t, false)
	p := s.proxy(t)
	unconditional := func(_ http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		if r.Header.Get("If-None-Match") != "" {
			s.client(t).RemoveObject(r.Context(), bucket, strings.TrimPrefix(r.URL.Path, "/"+bucket+"/"), minio.RemoveObjectOptions{})
		}
		return false
	}
	notImplemented := func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		if r.Header.Get("If-None-Match") == "" {
			return false
		}
		w.WriteHeader(http.StatusNotImplemented)
		io.WriteString(w, "<Error><Code>NotImplemented</Code><Message>A header you provided implies functionality that is not implemented</Message></Error>")
		return true
	}
	other := func(w http.ResponseWriter, r *http.Request, next http.Handler) bool {
		if r.Method != http.MethodGet || !strings.Contains(r.URL.Path, "/probe/") {
			return false
		}
		rec := httptest.NewRecorder()
		next.ServeHTTP(rec, r)
		for name, values := range rec.Header() {
			w.Header()[name] = values
		}
		w.WriteHeader(rec.Code)
		w.Write([]byte(strings.Repeat("x", rec.Body.Len())))
		return true
	}
	for name, c := range map[string]struct {
		fault fault
		want  string
	}{
		"unconditional":   {unconditional, "If-None-Match"},
		"not implemented": {notImplemented, "conditional"},
		"other bytes":     {other, "does not return"},
	} {
		p.set(c.fault)
		_, err := archive.Open(t.Context(), p.bucket(t, s), archive.Config{Keys: key(t)})
		if !errors.Is(err, archive.ErrUnsafe) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	p.fault.Store(nil)
	if got := list(t, p.bucket(t, s), "probe/"); len(got) > 0 {
		t.Errorf("there are %q", got)
	}
}

// TestEraseLeft: what an erasure cannot remove is listed.
func TestEraseLeft(t *testing.T) {
	s := start(t, false)
	p := s.proxy(t)
	a, one := open(t, p.bucket(t, s), key(t)), newHost(t, "host-1")
	_, err := one.archive(t, a, one.pause(t, "text"))
	must(t, err)
	denied := func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		if r.Method != http.MethodDelete {
			return false
		}
		w.WriteHeader(http.StatusForbidden)
		io.WriteString(w, "<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>")
		return true
	}
	busy := func(w http.ResponseWriter, _ *http.Request, _ http.Handler) bool { unavailable(w); return true }
	for name, f := range map[string]fault{"denied": denied, "busy": busy} {
		p.set(f)
		e, err := a.Erase(t.Context(), "acme", binding.Run)
		if err == nil || len(e.Left) == 0 || len(e.Removed) > 0 || !strings.Contains(strings.Join(e.Left, " "), binding.Run) {
			t.Errorf("%s: %+v, %v", name, e, err)
		}
	}
	p.fault.Store(nil)
	if e, err := a.Erase(t.Context(), "acme", binding.Run); err != nil || len(e.Removed) != 1 {
		t.Errorf("%+v, %v", e, err)
	}
}
