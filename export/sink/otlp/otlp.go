// Package otlp is the sink for receivers of OpenTelemetry logs (OTLP 1.x), over gRPC and over HTTP with protobuf.
//
// Each event is one log record: its body is the event in its format, its attributes are for searches.
// https://opentelemetry.io/docs/specs/otlp/ specifies the answers. There are two differences, so that nothing is lost:
// an answer that the specification calls final, and that concerns the configuration and not the data (no permission,
// unknown method, internal error), is retried; and if a receiver reports that it rejected some of a request, but not
// which, its halves are sent again until those are found. Accepted events are then sent twice, with the same id.
package otlp

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"unicode/utf8"

	collector "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	logs "go.opentelemetry.io/proto/otlp/logs/v1"
	resource "go.opentelemetry.io/proto/otlp/resource/v1"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/export"
)

// exporter is one of the two protocols.
type exporter interface {
	export(ctx context.Context, req *collector.ExportLogsServiceRequest) (*collector.ExportLogsServiceResponse, error)
	Close() error
}

// Sink sends to one receiver.
type Sink struct {
	over exporter
	mu   sync.Mutex // guards said
	said string     // the receiver's message in addition to accepting everything
}

// Batch implements export.Batcher: a gRPC server accepts messages of 4 MiB by default.
func (s *Sink) Batch() export.Batch { return export.Batch{Items: 500, Bytes: 1 << 20} }

// Warning implements export.Warner.
func (s *Sink) Warning() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.said
}

// Send implements export.Sink.
func (s *Sink) Send(ctx context.Context, items []export.Item) error {
	res, err := s.over.export(ctx, request(items))
	if err != nil {
		return err
	}
	part := res.GetPartialSuccess()
	n := part.GetRejectedLogRecords()
	switch {
	case n < 0 || n > int64(len(items)):
		return fmt.Errorf("the receiver rejected %d of %d events", n, len(items))
	case n > 0:
		return &export.Refused{Reason: fmt.Sprintf("the receiver rejected it: %.300s", part.GetErrorMessage())}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.said = ""; part.GetErrorMessage() != "" {
		s.said = fmt.Sprintf("the receiver says: %.300s", part.GetErrorMessage())
	}
	return nil
}

// Close implements export.Sink.
func (s *Sink) Close() error { return s.over.Close() }

// request makes one resource for each sequence of one host and tenant: nearly always one.
func request(items []export.Item) *collector.ExportLogsServiceRequest {
	req := &collector.ExportLogsServiceRequest{}
	var records *logs.ScopeLogs
	for n, i := range items {
		if n == 0 || i.Host != items[n-1].Host || i.Tenant != items[n-1].Tenant {
			records = &logs.ScopeLogs{Scope: &common.InstrumentationScope{Name: "custody"}}
			req.ResourceLogs = append(req.ResourceLogs, &logs.ResourceLogs{
				Resource:  &resource.Resource{Attributes: attributes("service.name", "custody", "host.name", i.Host, "custody.tenant", i.Tenant)},
				ScopeLogs: []*logs.ScopeLogs{records},
			})
		}
		records.LogRecords = append(records.LogRecords, record(i))
	}
	return req
}

func record(i export.Item) *logs.LogRecord {
	number, text := severity(i.Severity)
	return &logs.LogRecord{
		TimeUnixNano: uint64(max(0, i.Time.UnixNano())), ObservedTimeUnixNano: uint64(max(0, i.Time.UnixNano())),
		SeverityNumber: number, SeverityText: text, Body: value(string(i.Data)), EventName: eventName(i.Kind),
		Attributes: attributes("custody.id", i.ID, "custody.run", i.Run, "custody.seq", strconv.FormatUint(i.Seq, 10), "custody.kind", string(i.Kind)),
	}
}

func eventName(k audit.Kind) string {
	if k == "" {
		return "custody.erased"
	}
	return "custody." + string(k)
}

// attributes makes a list of names and values, omitting empty ones.
func attributes(pairs ...string) (list []*common.KeyValue) {
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			list = append(list, &common.KeyValue{Key: pairs[i], Value: value(pairs[i+1])})
		}
	}
	return list
}

// value is a string, or bytes if it is not UTF-8, which protobuf strings must be.
func value(s string) *common.AnyValue {
	if !utf8.ValidString(s) {
		return &common.AnyValue{Value: &common.AnyValue_BytesValue{BytesValue: []byte(s)}}
	}
	return &common.AnyValue{Value: &common.AnyValue_StringValue{StringValue: s}}
}

// severity follows the OpenTelemetry logs data model, appendix B, for syslog.
func severity(s export.Severity) (logs.SeverityNumber, string) {
	switch {
	case s <= export.Alert:
		return logs.SeverityNumber_SEVERITY_NUMBER_ERROR3, "Alert"
	case s <= export.Error:
		return logs.SeverityNumber_SEVERITY_NUMBER_ERROR, "Error"
	case s == export.Warning:
		return logs.SeverityNumber_SEVERITY_NUMBER_WARN, "Warning"
	case s == export.Notice:
		return logs.SeverityNumber_SEVERITY_NUMBER_INFO2, "Notice"
	}
	return logs.SeverityNumber_SEVERITY_NUMBER_INFO, "Informational"
}
