package client

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strings"
)

// maxEvent bounds an event of a stream, in bytes.
const maxEvent = 1 << 20

// Watch yields the changes in a directory, with recursive also those in the directories below, until ctx ends, the loop is left, or the
// directory is gone. The first change is "ready": later ones follow. After an error, such as that of a broken connection, and after the change
// "lost", changes can be missing: look at the directory, and watch it again after an error.
func (f *Files) Watch(ctx context.Context, path string, recursive bool) iter.Seq2[DirectoryChange, error] {
	return func(yield func(DirectoryChange, error) bool) {
		res, err := f.box.client.open(ctx, http.MethodGet, f.box.path("files", "watch"), f.query(path, "recursive", flag(recursive)), nil, nil)
		if err != nil {
			yield(DirectoryChange{}, err)
			return
		}
		defer res.Body.Close()
		in := bufio.NewScanner(res.Body)
		in.Buffer(nil, maxEvent)
		for last := uint64(0); ; last++ {
			kind, data, err := nextEvent(in)
			var c DirectoryChange
			switch {
			case err != nil:
			case kind == "end":
				return
			case kind == "problem":
				p := &Problem{}
				if err = json.Unmarshal(data, p); err == nil {
					err = p
				}
			case kind != "change":
				err = fmt.Errorf("the service sends an event %.40q", kind)
			default:
				if err = json.Unmarshal(data, &c); err == nil && c.Seq != last+1 {
					err = fmt.Errorf("change %d follows change %d", c.Seq, last)
				}
			}
			if err != nil && ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			if !yield(c, err) || err != nil {
				return
			}
		}
	}
}

// nextEvent returns the next event of a stream of server-sent events.
func nextEvent(in *bufio.Scanner) (kind string, data []byte, err error) {
	for in.Scan() {
		name, value, _ := strings.Cut(in.Text(), ": ")
		switch {
		case in.Text() == "" && kind != "":
			return kind, data, nil
		case name == "event":
			kind = value
		case name == "data":
			if data = append(data, value...); len(data) > maxEvent {
				return "", nil, bufio.ErrTooLong
			}
		}
	}
	if err := in.Err(); err != nil {
		return "", nil, err
	}
	return "", nil, io.ErrUnexpectedEOF
}
