package redact

// knownLeaks are the classes of values that a program shows, with "?" where it does so for few values.
// The test fails for one that is masked: the list can only become shorter. It is to be empty.
var knownLeaks = map[string]string{
	"python: yaml.safe_dump({'k': {'v': s}}, width=10**6)":                     "quoted",
	"python: yaml.safe_dump({'k': {'v': s}}, width=10**6, allow_unicode=True)": "quoted",
}
