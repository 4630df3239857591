package main

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
)

// handler serves ClickHouse's HTTP interface: a query in the body, or in the
// URL with the data of an INSERT in the body; settings and parameters in the
// URL. Each request has its own session.
type handler struct {
	engine *engine

	// mu is held for reading by every request, for writing by the end of the server.
	mu sync.RWMutex
}

// hello is the first query of clickhouse-go. The answer's revision is 0: with any other
// the client would expect fields of the native protocol.
const hello = "SELECT displayName(), version(), revision(), timezone()"

// answerHello returns the answer's block in the form for the client's own revision: with
// the block's info, and a byte for each column that states its default serialization.
func answerHello(version string) []byte {
	b := []byte{1, 0, 2, 0xff, 0xff, 0xff, 0xff, 0} // no overflow, no bucket
	b = append(b, 4, 1)                             // columns, rows
	for _, c := range [][3]string{{"displayName()", "String", "\x04chdb"}, {"version()", "String", string(rune(len(version))) + version},
		{"revision()", "UInt32", "\x00\x00\x00\x00"}, {"timezone()", "String", "\x03UTC"}} {
		b = append(append(b, byte(len(c[0]))), c[0]...)
		b = append(append(b, byte(len(c[1]))), c[1]...)
		b = append(append(b, 0), c[2]...)
	}
	return b
}

// ours are the URL's parameters that are not settings of the engine.
var ours = []string{"query", "database", "default_format", "query_id", "quota_key", "client_protocol_version",
	"user", "password", "compress", "decompress"}

var insertFormat = regexp.MustCompile(`(?is)^\s*(INSERT\s.*?)\s+FORMAT\s+(\w+)\s*;?\s*$`)

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if r.URL.Path == "/ping" {
		io.WriteString(w, "Ok.\n")
		return
	}
	runtime.LockOSThread() // the engine keeps a query's state with the thread
	defer runtime.UnlockOSThread()
	out := &writer{w: w}
	if err := h.serve(out, r); err != nil {
		out.fail(err)
	}
}

func (h *handler) serve(w *writer, r *http.Request) error {
	args := r.URL.Query()
	if args.Get("compress") == "1" || args.Get("decompress") == "1" {
		return engineError("Code: 48. DB::Exception: this server does not know the native compression (NOT_IMPLEMENTED)")
	}
	var body io.Reader = r.Body
	if r.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(r.Body)
		if err != nil {
			return err
		}
		body = z
	}
	s, err := h.engine.open()
	if err != nil {
		return err
	}
	defer s.close()
	params, settings := split(args)
	if db := args.Get("database"); db != "" {
		if err := s.run("USE "+name(db), "Null", nil, func([]byte) error { return nil }); err != nil {
			return err
		}
	}
	if err := s.set(settings); err != nil {
		return err
	}
	query := args.Get("query")
	if m := insertFormat.FindStringSubmatch(query); m != nil {
		return s.load(m[1], m[2], pieces(body))
	}
	rest, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	query = strings.TrimSpace(query + "\n" + string(rest))
	if query == hello {
		return w.write(answerHello(h.engine.version()))
	}
	format := args.Get("default_format")
	if format == "" {
		format = "TabSeparated"
	}
	return s.run(query, format, params, w.write)
}

// split sorts the URL's parameters into parameters of the query and settings.
func split(args url.Values) (params, settings []param) {
	for key := range args {
		if p, ok := strings.CutPrefix(key, "param_"); ok {
			params = append(params, param{p, args.Get(key)})
		} else if !slices.Contains(ours, key) {
			settings = append(settings, param{key, args.Get(key)})
		}
	}
	return params, settings
}

// pieces reads r piece by piece; an empty piece is the end. If the client disconnects
// before the end, the read fails and nothing is inserted.
func pieces(r io.Reader) func() ([]byte, error) {
	buf := make([]byte, 1<<20)
	return func() ([]byte, error) {
		n := 0
		for n < len(buf) {
			m, err := r.Read(buf[n:])
			n += m
			if err == io.EOF {
				break
			}
			if err != nil {
				return nil, err
			}
		}
		return buf[:n], nil
	}
}

// writer streams a result to the client.
type writer struct {
	w     http.ResponseWriter
	begun bool
}

func (w *writer) write(b []byte) error {
	if !w.begun {
		w.begun = true
		w.w.Header().Set("Content-Type", "application/octet-stream")
	}
	_, err := w.w.Write(b)
	return err
}

var errorCode = regexp.MustCompile(`^Code: (\d+)\.`)

// fail responds with the error or, if part of the result was sent, appends it
// with the marker that a ClickHouse server uses.
func (w *writer) fail(err error) {
	if w.begun {
		io.WriteString(w.w, "\r\n__exception__\r\n"+err.Error()+"\n")
		return
	}
	status := http.StatusInternalServerError
	if m := errorCode.FindStringSubmatch(err.Error()); m != nil {
		w.w.Header().Set("X-ClickHouse-Exception-Code", m[1])
		switch m[1] {
		case "60", "81": // unknown table, unknown database
			status = http.StatusNotFound
		case "62": // syntax
			status = http.StatusBadRequest
		}
	}
	http.Error(w.w, err.Error(), status)
}
