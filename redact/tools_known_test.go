package redact

// knownLeaks are the classes of values that a program shows, with "?" where it does so for few values.
// The test fails for one that is masked: the list can only become shorter. It is to be empty.
var knownLeaks = map[string]string{
	"go: %o of []byte":     "token special quoted latin mixed control binary pem lines json prefix base64 hex dotted 300 5000",
	"go: url.URL":          "quoted",
	"go: url.UserPassword": "300",
	"go: xml.EscapeText":   "json",
	"python: http.cookies.SimpleCookie({'k': s}).output()":                     "latin mixed control json 300 5000",
	"python: quopri.encodestring(b, quotetabs=True)":                           "quoted json",
	"python: xml.sax.saxutils.quoteattr(s)":                                    "control json",
	"python: yaml.safe_dump({'k': {'v': s}}, width=10**6)":                     "quoted",
	"python: yaml.safe_dump({'k': {'v': s}}, width=10**6, allow_unicode=True)": "quoted",
}
