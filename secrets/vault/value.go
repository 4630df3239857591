package vault

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/hashicorp/vault/api"
)

// dataOf returns the fields in Vault's response to the reading of a secret. A KV v2 engine has them one level down,
// beside its metadata (https://developer.hashicorp.com/vault/api-docs/secret/kv/kv-v2#read-secret-version).
func dataOf(s *api.Secret) (map[string]any, error) {
	if s == nil || s.Data == nil {
		return nil, errors.New("there is nothing at this path")
	}
	about, versioned := s.Data["metadata"].(map[string]any)
	if _, ok := about["version"]; !versioned || !ok || len(s.Data) != 2 {
		return s.Data, nil
	}
	data, ok := s.Data["data"].(map[string]any)
	if !ok {
		return nil, errors.New("its newest version is deleted")
	}
	return data, nil
}

// fieldOf returns a field's value: a string unchanged, anything else as JSON text. The error names no other field,
// because the step must not learn which exist.
func fieldOf(data map[string]any, field string) ([]byte, error) {
	v, ok := data[field]
	switch text := v.(type) {
	case string:
		return []byte(text), nil
	case nil:
		if !ok {
			return nil, fmt.Errorf("there is no field %q", field)
		}
		return nil, fmt.Errorf("the field %q is null", field)
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // as in Vault
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("the field %q cannot be written as text", field)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
