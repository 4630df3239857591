package store

// State is what is known of a record, or of a run as a whole: whether it is what a host signed.
type State string

// The states.
const (
	Holds     State = "holds"     // it is what was signed
	Fails     State = "fails"     // it is not: somebody changed, removed or added something
	Unsigned  State = "unsigned"  // nothing that anybody signed stands behind it
	Live      State = "live"      // it is in the log of a run that goes on, and is not sealed yet
	Cannot    State = "cannot"    // it cannot be known here, such as where the key of its host is not known
	Unchecked State = "unchecked" // nobody has looked, or not since it is as it is now
	Checking  State = "checking"  // it is being checked just now
)

// Mark is what those who show a record or a run say of it. Text says why, unless it holds.
type Mark struct {
	State State  `json:"state"`
	Text  string `json:"text,omitempty"`
}

// Good says whether what is marked can be shown as it is.
func (m Mark) Good() bool { return m.State == Holds || m.State == Live }

// Wrong says whether what is marked is known not to be what was signed.
func (m Mark) Wrong() bool { return m.State == Fails || m.State == Unsigned }

// MarkError is a run that is not what its store shows it as. Its Mark is one that is Wrong.
type MarkError struct{ Mark Mark }

// Error implements error.
func (e *MarkError) Error() string { return e.Mark.Text }
