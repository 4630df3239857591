package sandbox

import (
	"context"

	"github.com/custody-project/custody/audit"
)

// unplugged is a Network without a connection.
type unplugged struct{}

func (unplugged) Trust() []byte                 { return nil }
func (unplugged) Begin(context.Context) error   { return nil }
func (unplugged) Step(string)                   {}
func (unplugged) Attempted(string, *audit.Flow) {}
func (unplugged) Executed(*audit.Exec)          {}
func (unplugged) End()                          {}
