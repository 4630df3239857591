package audit

// Severity is how much a reader should care. The numbers are those of RFC 5424, section 6.2.1.
type Severity int

// The severities, most severe first.
const (
	SeverityAlert   Severity = 1
	SeverityError   Severity = 3
	SeverityWarning Severity = 4
	SeverityNotice  Severity = 5
	SeverityInfo    Severity = 6
)
