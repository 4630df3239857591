package access

import (
	"encoding/json"
	"errors"
	"io"
)

// strictJSON reads exactly one value; unknown fields are errors.
func strictJSON(r io.Reader, v any) error {
	d := json.NewDecoder(r)
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("data after the value")
	}
	return nil
}
