package command

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/custody-project/custody/privsep"
)

// commandCall is the call that executes a command. While it is being carried out, the service calls the client:
//
//	client                          service
//	command {path} + memory  ---->            the command's JSON is in a file in memory
//	                         <----  output {stream, data}          any number of times
//	                         <----  replace, output.., commit      a file that the client writes
//	interrupt                ---->            after a signal: the command ends in order
//	                         <----  result of command: {code}
const commandCall = "command"

// The other calls.
const (
	interruptCall = "interrupt"
	outputCall    = "output"
	replaceCall   = "replace"
	commitCall    = "commit"
)

// request is the body of a call.
type request struct {
	Path  string `json:"path"` // of the command
	Width int    `json:"width,omitempty"`
	Color bool   `json:"color,omitempty"`
}

// result is the result of a call.
type result struct {
	Code int `json:"code"`
}

// stream is where output goes at the client.
type stream int

const (
	toStdout stream = iota + 1
	toStderr
	toFile // the one that is being replaced
)

// output is a part of the output.
type output struct {
	Stream stream `json:"stream"`
	Data   []byte `json:"data"`
}

// written is the result of writing an output.
type written struct {
	Errno int `json:"errno,omitempty"` // of the failed write; 0: it succeeded
}

// commit ends the writing of a file.
type commit struct {
	Whole bool `json:"whole"` // the file is complete
}

// committed is the result of writing a file.
type committed struct {
	Failed bool `json:"failed,omitempty"` // the client could not write it, and reports why itself
}

const (
	// chunk is the size of an output. In base64 it fits into a message.
	chunk = privsep.MaxMessage / 2
	// maxCommand bounds a command's JSON: a few files of statement.MaxGiven bytes in base64.
	maxCommand = 8 << 20
)

// encode returns a command's JSON as a file in memory.
func encode(c Command) (*os.File, error) {
	f, err := privsep.Memory("command", c)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && info.Size() > maxCommand {
		err = fmt.Errorf("the command and the contents of its files have %d bytes; the limit is %d: name fewer or smaller files", info.Size(), maxCommand)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// decode decodes the command in a file that a client has sent, and closes the file.
func decode(path string, f *os.File) (Command, error) {
	c := named(path)
	if c == nil {
		return nil, errors.Join(fmt.Errorf("the service does not execute the command %.40q: run it on the host as root", path), f.Close())
	}
	if err := privsep.FromMemoryUpTo(maxCommand, f, c); err != nil {
		return nil, fmt.Errorf("command %s: %w", path, err)
	}
	return c, nil
}

// decodeKeys decodes the output of Keys.
func decodeKeys(text []byte, into any) error {
	if err := json.Unmarshal(bytes.TrimSpace(text), into); err != nil {
		return fmt.Errorf("the service's keys: %w", err)
	}
	return nil
}
