package secrets

// Credential is what the gateway puts into a request.
type Credential struct {
	Header      string // name of the header
	Value       []byte // the secret value; the caller does not change it
	Placeholder string // what the step has in its place; empty: nothing
}

// Item is one thing that is handed into a step.
type Item struct {
	Name  string // of the secret
	Env   string // environment variable that holds Value, or empty
	File  string // file in the step's tmpfs that holds Value, or empty
	Value []byte
}
