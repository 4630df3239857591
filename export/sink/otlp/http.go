package otlp

import (
	"context"
	"fmt"
	"mime"

	collector "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/custody-project/custody/export/sink/peer"
)

const (
	protobuf    = "application/x-protobuf"
	answerBytes = 1 << 20
)

type overHTTP struct {
	*peer.HTTP
	url string
}

// HTTP returns a sink, which connects when there is something to send.
func HTTP(o Options) *Sink {
	h := peer.NewHTTP(o.TLS)
	for k, v := range o.Headers {
		h.Header.Set(k, v)
	}
	h.Authorize = o.bearer
	return &Sink{over: &overHTTP{h, o.URL}}
}

func (h *overHTTP) export(ctx context.Context, req *collector.ExportLogsServiceRequest) (*collector.ExportLogsServiceResponse, error) {
	body, err := proto.Marshal(req)
	if err != nil {
		return nil, err // text that is not UTF-8: formats write none
	}
	a, err := h.Post(ctx, h.url, protobuf, body, true, answerBytes)
	if err != nil {
		return nil, err
	}
	if err := a.Outcome(); err != nil {
		return nil, err
	}
	return answer(a)
}

// answer reads the body of a success. Not all receivers answer with protobuf, as they should; but a body that is
// neither protobuf, nor its JSON, nor empty, may be of any other server.
func answer(a peer.Answer) (*collector.ExportLogsServiceResponse, error) {
	res := &collector.ExportLogsServiceResponse{}
	kind, _, _ := mime.ParseMediaType(a.Header.Get("Content-Type")) // "" if it is invalid
	switch {
	case a.Cut:
	case len(a.Body) == 0:
		return res, nil
	case kind == protobuf && proto.Unmarshal(a.Body, res) == nil:
		return res, nil
	case kind == "application/json" && (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(a.Body, res) == nil:
		return res, nil
	}
	return nil, fmt.Errorf("this is not an answer of an OTLP receiver: %s", a.Said())
}
