package ocsf

import "github.com/custody-project/custody/export"

// class is an event class with its activities that are used.
type class struct {
	uid        int
	name       string
	category   string
	activities map[int]string
}

// The classes, with captions and numbers of the schema.
func classes() map[int]class {
	return map[int]class{
		0: {0, "Base Event", "Uncategorized", nil},
		1001: {1001, "File System Activity", "System Activity", map[int]string{
			1: "Create", 2: "Read", 3: "Update", 4: "Delete", 5: "Rename"}},
		1007: {1007, "Process Activity", "System Activity", map[int]string{1: "Launch", 2: "Terminate"}},
		1008: {1008, "Event Log Activity", "System Activity", map[int]string{2: "Delete", 3: "Export"}},
		2004: {2004, "Detection Finding", "Findings", map[int]string{1: "Create"}},
		3002: {3002, "Authentication", "Identity & Access Management", map[int]string{1: "Logon", 2: "Logoff"}},
		4001: {4001, "Network Activity", "Network Activity", map[int]string{
			1: "Open", 2: "Close", 3: "Reset", 4: "Fail", 5: "Refuse"}},
		4002: {4002, "HTTP Activity", "Network Activity", map[int]string{
			1: "Connect", 2: "Delete", 3: "Get", 4: "Head", 5: "Options", 6: "Post", 7: "Put", 8: "Trace", 9: "Patch"}},
		4003: {4003, "DNS Activity", "Network Activity", map[int]string{6: "Traffic"}},
		5019: {5019, "Device Config State Change", "Discovery", map[int]string{1: "Log"}},
		6002: {6002, "Application Lifecycle", "Application Activity", map[int]string{3: "Start", 4: "Stop"}},
		6003: {6003, "API Activity", "Application Activity", map[int]string{
			1: "Create", 2: "Read", 3: "Update", 4: "Delete"}},
	}
}

// other is the activity without a number in the class; its name is then custom.
const other = 99

// status_id of all classes but findings.
const (
	unknown = 0
	success = 1
	failure = 2
)

func statusName(id int) string {
	switch id {
	case success:
		return "Success"
	case failure:
		return "Failure"
	}
	return "Unknown"
}

// severity maps the severities of RFC 5424 to OCSF's.
func severity(s export.Severity) (int, string) {
	switch s {
	case export.Alert:
		return 5, "Critical"
	case export.Error:
		return 4, "High"
	case export.Warning:
		return 3, "Medium"
	case export.Notice:
		return 2, "Low"
	}
	return 1, "Informational"
}

// control is the used part of the profile security_control: the action and its outcome.
type control struct{ action, disposition int }

// Actions and outcomes of enforcers and observers.
var (
	allowed   = control{1, 1}
	blocked   = control{2, 2}
	isolated  = control{2, 4}
	revoked   = control{2, 24}
	rejected  = control{2, 25}
	detected  = control{1, 15} // nothing was blocked
	logged    = control{3, 17} // observed, not decided; not all versions have action 3
	noControl = control{}
)

func actionName(id int) string {
	return [...]string{"Unknown", "Allowed", "Denied", "Observed"}[id]
}

func dispositionName(id int) string {
	switch id {
	case 1:
		return "Allowed"
	case 2:
		return "Blocked"
	case 4:
		return "Isolated"
	case 15:
		return "Detected"
	case 17:
		return "Logged"
	case 24:
		return "Access Revoked"
	case 25:
		return "Rejected"
	}
	return "Unknown"
}
