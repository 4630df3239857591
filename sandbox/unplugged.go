package sandbox

import (
	"context"
	"os"

	"github.com/custody-project/custody/audit"
)

// unplugged is a Network without a connection.
type unplugged struct{}

func (unplugged) Tap() *os.File               { return nil }
func (unplugged) Trust() []byte               { return nil }
func (unplugged) Begin(context.Context) error { return nil }
func (unplugged) Step(string)                 {}
func (unplugged) Attempted(*audit.Flow)       {}
func (unplugged) Executed(*audit.Exec)        {}
func (unplugged) End()                        {}
