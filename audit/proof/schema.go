package proof

import (
	"encoding/json"
	"fmt"

	"github.com/custody-project/custody/audit"
)

// kinds are all that this version knows.
var kinds = [...]audit.Kind{
	audit.KindRun, audit.KindStep, audit.KindExec, audit.KindExit, audit.KindFile, audit.KindFlow, audit.KindDNS, audit.KindHTTP,
	audit.KindLLM, audit.KindPolicy, audit.KindProbe, audit.KindOutput, audit.KindVM, audit.KindSecret, audit.KindGap, audit.KindFinding,
}

// kindOf reads a record's kind.
func kindOf(record []byte) (audit.Kind, error) {
	var r struct{ Kind audit.Kind }
	if err := json.Unmarshal(record, &r); err != nil {
		return "", fmt.Errorf("decode record: %w", err)
	}
	return r.Kind, nil
}
