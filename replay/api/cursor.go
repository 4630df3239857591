package api

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
)

// cursors makes and reads cursors. A cursor is a position in a paged response, authenticated together with
// the request. So it is valid for the same tenant, run and filter only, and clients cannot
// forge one.
//
//	base64url( HMAC-SHA256(key, len(scope) || scope || place)[:16] || place as JSON )
type cursors struct{ key []byte }

const cursorMAC = 16

func (c cursors) sign(scope string, place []byte) []byte {
	h := hmac.New(sha256.New, c.key)
	h.Write([]byte{byte(len(scope) >> 24), byte(len(scope) >> 16), byte(len(scope) >> 8), byte(len(scope))})
	h.Write([]byte(scope))
	h.Write(place)
	return h.Sum(nil)[:cursorMAC]
}

// make returns the cursor for a position in the responses to scope.
func (c cursors) make(scope string, place any) string {
	text, err := json.Marshal(place)
	if err != nil {
		panic(err) // positions always encode
	}
	return base64.RawURLEncoding.EncodeToString(append(c.sign(scope, text), text...))
}

// read decodes the position into what place points to.
func (c cursors) read(scope, cursor string, place any) error {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	if err != nil || len(raw) < cursorMAC || !hmac.Equal(raw[:cursorMAC], c.sign(scope, raw[cursorMAC:])) ||
		json.Unmarshal(raw[cursorMAC:], place) != nil {
		return bad("begin without a cursor: it is good for the same request as before only, until the server restarts", "the cursor is not one of this request's")
	}
	return nil
}
