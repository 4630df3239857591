package command

// access describes a command for the access log.
type access struct {
	action string // see audit.Access
	about  string // the run, as the client named it
	query  any    // the command without the contents of files
}
