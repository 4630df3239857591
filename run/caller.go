package run

import "github.com/custody-project/custody/run/caller"

// What a run exchanges with its caller.
type (
	Console  = caller.Console
	Files    = caller.Files
	FileSpec = caller.FileSpec
	Result   = caller.Result
	Source   = caller.Source
)
