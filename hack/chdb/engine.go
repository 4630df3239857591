package main

import (
	"errors"
	"fmt"
	"regexp"
	"runtime"
	"strings"
	"unsafe"

	"github.com/ebitengine/purego"
)

// engine is the ClickHouse engine in libchdb.so. A process has one, over one data
// directory. The functions are those of chdb.h of the chdb-core project.
type engine struct {
	path string // the argument --path=DIR
	keep *session

	connect   func(argc int32, argv unsafe.Pointer) unsafe.Pointer
	closeConn func(conn unsafe.Pointer)
	shutdown  func() int32
	version   func() string

	query        queryFunc
	stream       queryFunc
	fetch        func(conn, result uintptr) uintptr
	cancel       func(conn, result uintptr)
	destroy      func(result uintptr)
	resultError  func(result uintptr) string
	resultBuffer func(result uintptr) unsafe.Pointer
	resultLength func(result uintptr) uintptr

	insert        func(conn uintptr, q unsafe.Pointer, n uintptr, format unsafe.Pointer, fn uintptr) uintptr
	insertAppend  func(stream uintptr, data unsafe.Pointer, n uintptr) int32
	insertDone    func(stream uintptr) uintptr
	insertCancel  func(stream uintptr)
	insertError   func(stream uintptr) string
	insertDestroy func(stream uintptr)
}

// queryFunc is chdb_query_with_params_n, or its streaming variant, which accepts only SELECTs.
type queryFunc func(conn uintptr, q unsafe.Pointer, n uintptr, format unsafe.Pointer, fn uintptr,
	names, nameLens, values, valueLens unsafe.Pointer, count uintptr) uintptr

// load opens the library and starts the engine over the data in dir.
func load(library, dir string) (*engine, error) {
	lib, err := purego.Dlopen(library, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, fmt.Errorf("load the engine: %w", err)
	}
	e := &engine{path: "--path=" + dir}
	var signals func(int32)
	for name, f := range map[string]any{
		"chdb_set_signal_handlers_enabled": &signals,
		"chdb_connect":                     &e.connect,
		"chdb_close_conn":                  &e.closeConn,
		"chdb_shutdown":                    &e.shutdown,
		"chdb_version":                     &e.version,
		"chdb_query_with_params_n":         &e.query,
		"chdb_stream_query_with_params_n":  &e.stream,
		"chdb_stream_fetch_result":         &e.fetch,
		"chdb_stream_cancel_query":         &e.cancel,
		"chdb_destroy_query_result":        &e.destroy,
		"chdb_result_error":                &e.resultError,
		"chdb_result_buffer":               &e.resultBuffer,
		"chdb_result_length":               &e.resultLength,
		"chdb_stream_insert_n":             &e.insert,
		"chdb_stream_append":               &e.insertAppend,
		"chdb_stream_done":                 &e.insertDone,
		"chdb_stream_cancel_insert":        &e.insertCancel,
		"chdb_stream_insert_error":         &e.insertError,
		"chdb_destroy_insert_stream":       &e.insertDestroy,
	} {
		purego.RegisterLibFunc(f, lib, name)
	}
	signals(0)             // Go handles them
	e.keep, err = e.open() // the engine ends with its last session
	return e, err
}

func (e *engine) close() {
	e.keep.close()
	e.shutdown()
}

// session is a connection within the process, with its own settings. It must be used and
// closed by one goroutine, locked to its thread.
type session struct {
	e      *engine
	handle unsafe.Pointer // chdb_connection *
}

func (e *engine) open() (*session, error) {
	var pin runtime.Pinner
	defer pin.Unpin()
	argv := make([]*byte, 3) // ends with NULL
	for i, a := range []string{"clickhouse", e.path} {
		argv[i] = &append([]byte(a), 0)[0]
		pin.Pin(argv[i])
	}
	handle := e.connect(2, unsafe.Pointer(&argv[0]))
	if handle == nil {
		return nil, errors.New("the engine refused a connection: is another process using the directory?")
	}
	return &session{e, handle}, nil
}

func (s *session) close() { s.e.closeConn(s.handle) }

func (s *session) conn() uintptr { return *(*uintptr)(s.handle) }

// engineError is the engine's error message: "Code: 60. DB::Exception: ...".
type engineError string

func (e engineError) Error() string { return string(e) }

// param is a value of {name:Type} in a query.
type param struct{ name, value string }

var selects = regexp.MustCompile(`(?i)^(\s|--.*\n)*(SELECT|WITH)\b`)

// run executes a query and passes its result to write piece by piece, in format
// unless the query names another. A piece is valid until write returns.
func (s *session) run(query, format string, params []param, write func([]byte) error) error {
	if !selects.MatchString(query) {
		r := s.call(s.e.query, query, format, params)
		defer s.e.destroy(r)
		_, err := s.piece(r, write)
		return err
	}
	r := s.call(s.e.stream, query, format, params)
	defer s.e.destroy(r)
	if msg := s.e.resultError(r); msg != "" {
		return engineError(msg)
	}
	for {
		next := s.e.fetch(s.conn(), r)
		more, err := s.piece(next, write)
		s.e.destroy(next)
		if err != nil {
			s.e.cancel(s.conn(), r)
		}
		if err != nil || !more {
			return err
		}
	}
}

func (s *session) call(f queryFunc, query, format string, params []param) uintptr {
	q, n := text(query)
	fp, fn := text(format)
	size := len(params) + 1 // not empty, so that &names[0] exists
	names, values := make([]unsafe.Pointer, size), make([]unsafe.Pointer, size)
	nameLens, valueLens := make([]uintptr, size), make([]uintptr, size)
	var pin runtime.Pinner
	defer pin.Unpin()
	for i, p := range params {
		names[i], nameLens[i] = text(p.name)
		values[i], valueLens[i] = text(p.value)
		pin.Pin(names[i])
		pin.Pin(values[i])
	}
	return f(s.conn(), q, n, fp, fn, unsafe.Pointer(&names[0]), unsafe.Pointer(&nameLens[0]),
		unsafe.Pointer(&values[0]), unsafe.Pointer(&valueLens[0]), uintptr(len(params)))
}

// piece passes a result's data to write, and reports whether there was any.
func (s *session) piece(r uintptr, write func([]byte) error) (bool, error) {
	if msg := s.e.resultError(r); msg != "" {
		return false, engineError(msg)
	}
	n := s.e.resultLength(r)
	if n == 0 {
		return false, nil
	}
	return true, write(unsafe.Slice((*byte)(s.e.resultBuffer(r)), n))
}

// load executes an INSERT, without its FORMAT, with the data that read returns; an empty slice ends the data.
func (s *session) load(insert, format string, read func() ([]byte, error)) error {
	q, n := text(insert)
	f, fn := text(format)
	stream := s.e.insert(s.conn(), q, n, f, fn)
	defer s.e.insertDestroy(stream)
	for {
		if msg := s.e.insertError(stream); msg != "" {
			return engineError(msg)
		}
		data, err := read()
		if err != nil {
			s.e.insertCancel(stream)
			return err
		}
		if len(data) == 0 {
			break
		}
		s.e.insertAppend(stream, unsafe.Pointer(&data[0]), uintptr(len(data))) // insertError or the result reports its failure
	}
	r := s.e.insertDone(stream)
	defer s.e.destroy(r)
	if msg := s.e.resultError(r); msg != "" {
		return engineError(msg)
	}
	return nil
}

// set applies settings to the session.
func (s *session) set(settings []param) error {
	if len(settings) == 0 {
		return nil
	}
	var b strings.Builder
	for i, p := range settings {
		b.WriteString([]string{"SET ", ", "}[min(i, 1)])
		fmt.Fprintf(&b, "%s = %s", name(p.name), quote(p.value))
	}
	return s.run(b.String(), "Null", nil, func([]byte) error { return nil })
}

// text is a string's address and length, as C takes them.
func text(s string) (unsafe.Pointer, uintptr) {
	if s == "" {
		return unsafe.Pointer(&[]byte{0}[0]), 0
	}
	return unsafe.Pointer(unsafe.StringData(s)), uintptr(len(s))
}

func quote(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(s) + "'"
}

func name(s string) string {
	return "`" + strings.NewReplacer(`\`, `\\`, "`", "\\`").Replace(s) + "`"
}
