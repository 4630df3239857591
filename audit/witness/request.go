package witness

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/transparency-dev/formats/log"
	"golang.org/x/mod/sumdb/note"
)

const (
	maxRequest = 64 << 10 // bytes of a body
	maxProof   = 63       // lines, C2SP tlog-witness
	hashSize   = 32
)

// request is the body of add-checkpoint (C2SP tlog-witness):
//
//	old <size>
//	<hash in base64>   at most 63 times
//
//	<checkpoint>
type request struct {
	old    uint64
	proof  [][]byte
	signed []byte // the checkpoint as received, with its signatures
	head   head   // parsed from signed; not authenticated
}

// head is the text of a checkpoint (C2SP tlog-checkpoint), without extension lines.
type head struct {
	origin string
	size   uint64
	root   [hashSize]byte
}

func parseRequest(body []byte) (request, error) {
	var r request
	if len(body) > maxRequest {
		return r, fmt.Errorf("the request has more than %d bytes", maxRequest)
	}
	top, signed, ok := bytes.Cut(body, []byte("\n\n"))
	if !ok {
		return r, errors.New("no empty line before the checkpoint")
	}
	lines := strings.Split(string(top), "\n")
	old, ok := strings.CutPrefix(lines[0], "old ")
	if !ok {
		return r, errors.New("the first line is not the old size")
	}
	var err error
	if r.old, err = parseSize(old); err != nil {
		return r, fmt.Errorf("old size: %w", err)
	}
	if len(lines)-1 > maxProof {
		return r, fmt.Errorf("more than %d lines of proof", maxProof)
	}
	for _, line := range lines[1:] {
		hash, err := parseHash(line)
		if err != nil {
			return r, err
		}
		r.proof = append(r.proof, hash[:])
	}
	r.signed = signed
	r.head, err = unverifiedHead(signed)
	return r, err
}

// unverifiedHead parses a signed checkpoint without verifying its signatures.
func unverifiedHead(signed []byte) (head, error) {
	_, err := note.Open(signed, note.VerifierList())
	var unverified *note.UnverifiedNoteError
	if !errors.As(err, &unverified) {
		return head{}, fmt.Errorf("checkpoint: %w", err)
	}
	return parseHead(unverified.Note.Text)
}

// parseHead accepts only the canonical encoding of a checkpoint.
func parseHead(text string) (head, error) {
	var c log.Checkpoint
	rest, err := c.Unmarshal([]byte(text))
	if err != nil {
		return head{}, fmt.Errorf("checkpoint: %w", err)
	}
	if len(c.Hash) != hashSize || string(c.Marshal())+string(rest) != text {
		return head{}, errors.New("checkpoint: not in the canonical form")
	}
	if len(rest) > 0 && (rest[0] == '\n' || bytes.Contains(rest, []byte("\n\n")) || rest[len(rest)-1] != '\n') {
		return head{}, errors.New("checkpoint: an extension line is empty")
	}
	return head{origin: c.Origin, size: c.Size, root: [hashSize]byte(c.Hash)}, nil
}

// parseSize parses decimal digits without leading zeros.
func parseSize(s string) (uint64, error) {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil || strconv.FormatUint(n, 10) != s {
		return 0, fmt.Errorf("%.40q is not a number", s)
	}
	return n, nil
}

func parseHash(s string) (h [hashSize]byte, err error) {
	raw, err := base64.StdEncoding.Strict().DecodeString(s)
	if err != nil || len(raw) != hashSize || strings.ContainsAny(s, "\r\n") {
		return h, fmt.Errorf("%.60q is not a hash in base64", s)
	}
	return [hashSize]byte(raw), nil
}
