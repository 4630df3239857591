package otlp

import (
	"context"
	"fmt"
	"mime"

	collector "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	"google.golang.org/protobuf/proto"

	"github.com/custody-project/custody/audit/export/peer"
)

const (
	protobuf    = "application/x-protobuf"
	answerBytes = 1 << 20
)

type overHTTP struct {
	*peer.HTTP
	url string
}

// HTTP returns a sink that connects when there is something to send.
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
		return nil, err // text that is no UTF-8: Format gives none
	}
	a, err := h.Post(ctx, h.url, protobuf, body, true, answerBytes)
	if err != nil {
		return nil, err
	}
	if err := a.Outcome(); err != nil {
		return nil, err
	}
	res := &collector.ExportLogsServiceResponse{}
	kind, _, err := mime.ParseMediaType(a.Header.Get("Content-Type"))
	if err != nil || kind != protobuf || a.Cut || a.Status != 200 || proto.Unmarshal(a.Body, res) != nil {
		return nil, fmt.Errorf("this is not how a receiver of OTLP answers: %s", a.Said())
	}
	return res, nil
}
