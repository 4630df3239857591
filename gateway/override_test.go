package gateway

import (
	"net/http"
	"strings"
	"testing"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/netpolicy"
)

// TestOverrides requests another method or path than the request line's, in both versions of HTTP.
func TestOverrides(t *testing.T) {
	for _, change := range [][]func(*http.Transport){nil, {withH2}} {
		w := newWorld(t, []netpolicy.Rule{
			rule("a.example", withHTTP([]string{"GET", "POST", "PUT"}, []string{"/v1/*"})),
			rule("methods.example", withHTTP([]string{"POST"}, nil)),
			rule("paths.example", withHTTP(nil, []string{"/v1/*"})),
			rule("all.example", withHTTP(nil, nil)),
		})
		for _, name := range []string{"a.example", "methods.example", "paths.example", "all.example"} {
			w.newHost(name, 443, nil)
		}
		events := 0
		for _, c := range []struct {
			host, method, query string
			field               string // name
			value               string
			no                  string // the reason; empty: allowed
		}{
			{host: "a.example", field: "X-HTTP-Method-Override", value: "DELETE", no: "X-Http-Method-Override"},
			{host: "a.example", field: "X-HTTP-Method", value: "DELETE", no: "X-Http-Method"},
			{host: "a.example", field: "X-Method-Override", value: "DELETE", no: "X-Method-Override"},
			{host: "a.example", field: "X-METHOD", value: "DELETE", no: "X-Method"},
			{host: "a.example", field: "x_http_method_override", value: "DELETE", no: "X-Http-Method-Override"},
			{host: "a.example", field: "XHttpMethod", value: "DELETE", no: "Xhttpmethod"},
			{host: "a.example", field: "Method", value: "DELETE", no: "Method"},
			{host: "a.example", field: "_method", value: "DELETE", no: "-Method"},
			{host: "a.example", field: "X-HTTP-Verb", value: "DELETE", no: "X-Http-Verb"},
			{host: "a.example", field: "X-Forwarded-Method", value: "DELETE", no: "X-Forwarded-Method"},
			{host: "a.example", field: "X-Original-URL", value: "/admin", no: "X-Original-Url"},
			{host: "a.example", field: "X-Original-URI", value: "/admin", no: "X-Original-Uri"},
			{host: "a.example", field: "X-Rewrite-URL", value: "/admin", no: "X-Rewrite-Url"},
			{host: "a.example", field: "X-Override-URL", value: "/admin", no: "X-Override-Url"},
			{host: "a.example", field: "X-Forwarded-Uri", value: "/admin", no: "X-Forwarded-Uri"},
			{host: "a.example", field: "X-Forwarded-Prefix", value: "/admin", no: "X-Forwarded-Prefix"},
			{host: "a.example", field: "X-Envoy-Original-Path", value: "/admin", no: "X-Envoy-Original-Path"},
			{host: "a.example", field: "X-Request-Uri", value: "/admin", no: "X-Request-Uri"},
			{host: "a.example", field: "X-Http-DestinationURL", value: "/admin", no: "Destinationurl"},
			{host: "a.example", field: "Destination", value: "https://a.example/admin", no: "Destination"},
			{host: "a.example", field: "X-Amz-Copy-Source", value: "/other/key", no: "X-Amz-Copy-Source"},
			{host: "methods.example", method: "POST", field: "X-Http-Method", value: "GET", no: "X-Http-Method"},
			{host: "paths.example", field: "X-Original-Url", value: "/admin", no: "X-Original-Url"},
			{host: "all.example", field: "X-HTTP-Method-Override", value: "DELETE"},
			{host: "a.example", method: "POST", query: "?_method=DELETE", no: "_method"},
			{host: "a.example", method: "POST", query: "?a=b&_method=delete", no: "DELETE"},
			{host: "a.example", method: "POST", query: "?a=b;_method=delete", no: "DELETE"},
			{host: "a.example", method: "POST", query: "?%5Fmethod=%44ELETE", no: "DELETE"},
			{host: "a.example", method: "POST", query: "?_method[]=DELETE", no: "DELETE"},
			{host: "a.example", method: "POST", query: "?_METHOD=PURGE", no: "PURGE"},
			{host: "a.example", method: "POST", query: "?_HttpMethod=DELETE", no: "DELETE"},
			{host: "a.example", method: "POST", query: "?X-HTTP-Method-Override=DELETE", no: "DELETE"},
			{host: "a.example", query: "?method=delete", no: "DELETE"},
			{host: "a.example", query: "?httpMethod=PATCH", no: "PATCH"},
			{host: "methods.example", method: "POST", query: "?_method=GET", no: "GET"},
			{host: "paths.example", method: "POST", query: "?_method=TRACE", no: "TRACE"},
			{host: "a.example", method: "POST", query: "?_method=PUT"}, // which the rule allows
			{host: "a.example", method: "POST", query: "?_method=post"},
			{host: "paths.example", method: "POST", query: "?_method=DELETE"},
			{host: "all.example", method: "POST", query: "?_method=DELETE"},
			{host: "a.example", query: "?method=flickr.photos.search&paymentMethod=card&methods=DELETE,GET"},
			{host: "a.example", query: "?_method=&method=&q=_method=DELETE"},
			{host: "a.example", method: "GET", field: "Access-Control-Request-Method", value: "DELETE"},
			{host: "a.example", field: "X-Stainless-Runtime", value: "node"},
			{host: "a.example", field: "X-Request-Id", value: "1"},
			{host: "a.example", field: "X-Amz-Target", value: "DynamoDB.GetItem"},
			{host: "a.example", field: "Referer", value: "https://a.example/url"},
		} {
			method := c.method
			if method == "" {
				method = "GET"
			}
			req, _ := http.NewRequest(method, "https://"+c.host+"/v1/x"+c.query, nil)
			if c.field != "" {
				req.Header[c.field] = []string{c.value}
			}
			resp, err := w.client(c.host, change...).Do(req)
			if err != nil {
				t.Fatal(c, err)
			}
			events++
			switch ev := w.http(events); {
			case c.no == "":
				if resp.StatusCode != 200 || ev.Verdict != audit.Allow {
					t.Errorf("%+v: %d %+v", c, resp.StatusCode, ev)
				}
			case resp.StatusCode != 403 || ev.Verdict != audit.Deny || !strings.Contains(w.refusalOf(resp), c.no):
				t.Errorf("%+v: %d %+v", c, resp.StatusCode, ev)
			}
			resp.Body.Close()
		}
	}
}
