// Package secrets says how the values of secrets are got, whoever keeps them.
//
// A source is what custody.yaml writes under "from": env:NAME, file:PATH,
// cmd:COMMAND or vault:PATH#FIELD. A Resolver turns it into the value, in
// memory; no resolver writes a value anywhere, and no error contains one.
package secrets

import "context"

// Resolver gets the value of a source. Relative paths and commands start at dir.
// It is safe for concurrent use.
type Resolver func(ctx context.Context, from, dir string) ([]byte, error)
