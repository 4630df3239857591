package channel

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"path"
	"strings"
)

// The paths and the variable with which a step finds its secrets.
const (
	SecretsDir     = "/run/secrets"      // a tmpfs of the step's own, which ends with it
	SecretsEnvFile = SecretsDir + "/env" // export NAME='value' for each variable, to be sourced by a shell
	SecretsEnv     = "CUSTODY_SECRETS"   // variable that holds SecretsDir, in a step that has any
)

// Bounds of a command's secrets.
const (
	MaxSecrets = 64
	MaxSecret  = 16 << 10 // bytes of a value
	maxFile    = 200      // bytes of a file's path
	maxEnvName = 128
)

// Secret is a value for one step. It is sealed on the channel (see seal) and unencrypted
// only in the step's tmpfs and its processes.
type Secret struct {
	Env   string // name of the variable that is to hold it, or empty
	File  string // path below SecretsDir of the file that is to hold it, or empty
	Value []byte
}

// Format implements fmt.Formatter: it never prints the value.
func (s Secret) Format(f fmt.State, _ rune) {
	fmt.Fprintf(f, "{%q %q, %d bytes}", s.Env, s.File, len(s.Value))
}

// checkSecrets refuses what the guest could not deliver. Its errors never contain a value.
func checkSecrets(all []Secret) error {
	if len(all) > MaxSecrets {
		return fmt.Errorf("%d secrets for one step, at most %d are allowed", len(all), MaxSecrets)
	}
	envs, files := map[string]bool{}, map[string]bool{}
	for _, s := range all {
		if err := s.check(); err != nil {
			return err
		}
		if s.Env != "" && envs[s.Env] || s.File != "" && files[s.File] {
			return fmt.Errorf("two secrets for one variable or file: %v", s)
		}
		envs[s.Env], files[s.File] = true, true
	}
	for f := range files {
		for dir := path.Dir(f); dir != "."; dir = path.Dir(dir) {
			if files[dir] {
				return fmt.Errorf("secret file %q lies below another, %q", f, dir)
			}
		}
	}
	return nil
}

func (s Secret) check() error {
	switch {
	case s.Env == "" && s.File == "":
		return errors.New("secret that is delivered nowhere")
	case len(s.Value) > MaxSecret:
		return fmt.Errorf("value of %d bytes, at most %d are allowed: %v", len(s.Value), MaxSecret, s)
	case s.Env != "" && !isEnvName(s.Env):
		return fmt.Errorf("%q cannot be a variable that holds a secret", s.Env)
	case s.Env != "" && bytes.IndexByte(s.Value, 0) >= 0:
		return fmt.Errorf("value holds a NUL byte and cannot be a variable: %v; deliver it as a file", s)
	case s.File != "" && !isFileName(s.File):
		return fmt.Errorf("%q cannot be a secret's file: it must be a plain path below %s, and not %s", s.File, SecretsDir, SecretsEnvFile)
	}
	return nil
}

func isEnvName(s string) bool {
	for i, r := range s {
		if r != '_' && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return s != "" && len(s) <= maxEnvName && s != SecretsEnv
}

func isFileName(s string) bool {
	control := func(r rune) bool { return r < ' ' || r == 0x7f }
	return s != "" && len(s) <= maxFile && path.Clean(s) == s && !path.IsAbs(s) && s != "." && s != ".." && !strings.HasPrefix(s, "../") &&
		s != "env" && !strings.HasPrefix(s, "env/") && !strings.ContainsFunc(s, control)
}

// A bundle is what is sealed for one command, all numbers big-endian:
//
//	step key (32 bytes)  count (2)  { length (2), variable; length (2), file; length (2), value } ...
type bundle struct {
	key     [stepKeySize]byte
	secrets []Secret
}

const (
	stepKeySize = 32
	maxBundle   = stepKeySize + 2 + MaxSecrets*(6+maxEnvName+maxFile+MaxSecret)
)

// encode returns the bundle in a buffer that nothing was copied out of, with room for a tag behind it.
func (b *bundle) encode() []byte {
	size := stepKeySize + 2
	for _, s := range b.secrets {
		size += 6 + len(s.Env) + len(s.File) + len(s.Value)
	}
	out := make([]byte, 0, size+sealTag)
	out = append(out, b.key[:]...)
	out = binary.BigEndian.AppendUint16(out, uint16(len(b.secrets)))
	for _, s := range b.secrets {
		out = append(binary.BigEndian.AppendUint16(out, uint16(len(s.Env))), s.Env...)
		out = append(binary.BigEndian.AppendUint16(out, uint16(len(s.File))), s.File...)
		out = append(binary.BigEndian.AppendUint16(out, uint16(len(s.Value))), s.Value...)
	}
	return out
}

var errBundle = errors.New("what was sealed is not a step's secrets")

// decodeBundle reads a bundle. Its values are parts of in.
func decodeBundle(in []byte) (*bundle, error) {
	if len(in) < stepKeySize+2 {
		return nil, errBundle
	}
	b := &bundle{key: [stepKeySize]byte(in)}
	count := binary.BigEndian.Uint16(in[stepKeySize:])
	in = in[stepKeySize+2:]
	field := func() (f []byte, ok bool) {
		if len(in) < 2 || len(in)-2 < int(binary.BigEndian.Uint16(in)) {
			return nil, false
		}
		end := 2 + int(binary.BigEndian.Uint16(in))
		f, in = in[2:end:end], in[end:]
		return f, true
	}
	for range min(count, MaxSecrets+1) {
		env, ok1 := field()
		file, ok2 := field()
		value, ok3 := field()
		if !ok1 || !ok2 || !ok3 {
			return nil, errBundle
		}
		b.secrets = append(b.secrets, Secret{Env: string(env), File: string(file), Value: value})
	}
	if len(in) > 0 {
		return nil, errBundle
	}
	return b, checkSecrets(b.secrets)
}
