// Package transfer copies a workspace in and out for a process that cannot access the directories of the user: a worker, which
// parses what the guest sends.
//
//	worker: channel.Client.CopyIn  <-- Client (Source)       <== tar stream in a pipe ==  Server: channel.SourceDir
//	worker: channel.Client.CopyOut --> Client (Destination)  --- name, link, place ---->  Server: channel.DestinationDir
//	                                                         === content in pipes ====>
//	                                      privsep
//
// The Server, in the privileged process, reads and writes the files. It trusts the directory that is copied in. All checks of
// what is copied out are in channel.DestinationDir, so a worker that was taken over can neither leave the directory
// nor replace a file that the host executes, nor write more than the sandbox's disk holds. It does not get descriptors of
// files, with which it could change them after they have been checked and placed, but of pipes.
package transfer

import (
	"github.com/custody-project/custody/guest/channel"
	"github.com/custody-project/custody/privsep"
)

// The calls of a Client.
const (
	callPack      = "copy-in-pack"
	callPacked    = "copy-in-packed"
	callOpen      = "copy-out-open"
	callDirectory = "copy-out-directory"
	callFile      = "copy-out-file"
	callLink      = "copy-out-link"
	callPlace     = "copy-out-place"
	callDrop      = "copy-out-drop"
	callClose     = "copy-out-close"
)

// The arguments and results of calls. Names are []byte, because they may hold any byte but NUL.
type (
	emptyMessage struct{}

	// packedCall asks for the warnings of packing, from this one on.
	packedCall   struct{ From int }
	packedResult struct {
		Warnings []string
		More     bool
	}

	directoryCall struct {
		Name []byte
		Mode uint32
	}
	directoryResult struct {
		OK      bool
		Warning string
	}

	fileCall struct {
		Name       []byte
		Attributes channel.Attributes
	}
	linkCall struct{ Name, Target []byte }
	// partResult is a channel.Part. With that of a file comes the end of a pipe for its content.
	partResult struct {
		ID       channel.PartID
		As       []byte
		Warnings []string
	}

	placeCall   struct{ Parts []channel.PartID }
	placeResult struct{ Taken []channel.PartID }
	dropCall    struct{ Part channel.PartID }
)

// maxWarnings is the number of bytes of warnings in a message, which are encoded in up to twice as many. One warning
// about a name of 4 KiB has at most 17 KiB.
const maxWarnings = privsep.MaxMessage / 4
