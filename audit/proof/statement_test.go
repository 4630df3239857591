package proof_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/proof/statement"
)

// TestUnreadableStatements: the host signs nothing that verify would always refuse.
func TestUnreadableStatements(t *testing.T) {
	w := newWorld(t)
	frame := frameOf(t, w.one, 8)
	for title, text := range map[string]string{"not UTF-8": "a\xff", "too long": strings.Repeat("x", 64<<10)} {
		for _, by := range []bool{false, true} {
			reason, who := text, "dpo"
			if by {
				reason, who = who, text
			}
			e, err := statement.NewErasure(frame, reason, who, at)
			check(t, err)
			if _, err := proof.StateErasure(w.one, e, w.signer); err == nil {
				t.Errorf("%s: an erasure is stated", title)
			}
		}
		o := w.options()
		o.By, o.Time = text, at
		o.Attachments = []statement.Attachment{{Name: "report/a", Data: []byte("a")}}
		if err := proof.WriteBundle(t.Context(), &bytes.Buffer{}, w.one, o); err == nil {
			t.Errorf("%s: a file is attached", title)
		}
		o = w.options()
		o.Time, o.Select = at, &proof.Selection{Shows: func(uint64) bool { return true }, What: text}
		if err := proof.WriteBundle(t.Context(), &bytes.Buffer{}, w.one, o); err == nil {
			t.Errorf("%s: a selection is stated", title)
		}
	}
	if _, err := os.Stat(filepath.Join(w.one, statement.ErasureName(8))); err == nil {
		t.Error("a statement is left")
	}
	state(t, w.key, w.one, 8) // it can still be stated
}
