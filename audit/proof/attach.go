package proof

import (
	"slices"

	"github.com/custody-project/custody/audit/proof/statement"
)

// addAttachments adds the files and the statement about them.
func (b *bundler) addAttachments() {
	if len(b.Attachments) == 0 {
		return
	}
	for _, f := range b.Attachments {
		b.addBytes(f.Name, f.Data)
	}
	b.add(attachmentsFile, func() ([]byte, error) {
		about := slices.DeleteFunc(slices.Clone(b.About), func(s statement.Subject) bool { return s.Run == b.head.Run })
		return statement.SignAttachments(b.Signer, append([]statement.Subject{b.head}, about...), b.Attachments, b.By, b.Time)
	})
}
