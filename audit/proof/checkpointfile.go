package proof

import "github.com/custody-project/custody/audit/proof/statement"

type signedCheckpoint struct {
	statement.Checkpoint
	note []byte
}
