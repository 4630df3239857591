package redact

// knownLeaks are the classes of values that a program reveals, with "?" if it does so for few values. The test fails for
// one that is masked, so the list can only become shorter. It should become empty.
var knownLeaks = map[string]string{
	"git: git config":                                                          "control?",
	"python: s.encode('utf-32-be')":                                            "emoji",
	"python: s.encode('utf-32-le')":                                            "emoji",
	"python: yaml.safe_dump({'k': {'v': s}}, width=10**6)":                     "special quoted control 300",
	"python: yaml.safe_dump({'k': {'v': s}}, width=10**6, allow_unicode=True)": "special quoted control 300",
}
