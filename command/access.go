package command

import (
	"encoding/json"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/host"
)

// access describes a command for the access log.
type access struct {
	action string // see audit.Access
	about  string // the run, as the client named it
	query  any    // the command without the contents of files
}

// maxRecorded is the number of bytes that an event keeps of a command.
const maxRecorded = 4096

// event returns the event of a command that will be executed for a user.
func event(c Command, uid int, tenant string) (audit.Access, error) {
	a := c.access()
	query, err := json.Marshal(a.query)
	if err != nil {
		return audit.Access{}, err
	}
	return audit.Access{
		Who: host.UserName(uid), Via: "cli", Tenant: tenant, Action: a.action, Route: "custody " + c.Path(), Verdict: audit.Allow,
		About: audit.Text(clip(a.about)), Query: audit.Text(clip(string(query))),
	}, nil
}

func clip(s string) string { return s[:min(len(s), maxRecorded)] }
