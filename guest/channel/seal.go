package channel

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"runtime"

	"github.com/custody-project/custody/guest/erase"
)

// All data on the channel stays in the guest's memory: in the
// buffers of the port's driver and of yamux, which are reused.
// So a step's secrets are sealed for a key that the guest makes only for them
// and erases when it has opened them:
//
//	guest: x, X = x*G           host: y, Y = y*G
//	   X  ------------------------>
//	      <------------------------  Y, AES-256-GCM(k, bundle)
//	Z = x*Y = y*X (X25519, RFC 7748)
//	k = SHA-256(00000001 || Z || X || Y || context) (one-step KDF of NIST SP 800-56C, 4.1)
//
// The nonce is zero: each key seals once. The context, which is the additional
// data as well, binds run and step, so that no guest can open what was meant
// for another.

const (
	pointSize = 32
	sealTag   = 16
	maxSealed = pointSize + maxBundle + sealTag
)

// sealContext describes what is sealed and for whom. A run's and a step's name hold no NUL.
func sealContext(run, step string) []byte {
	return []byte("custody secrets v1\x00" + run + "\x00" + step)
}

// seal seals a plaintext in its own buffer for the holder of the key to the
// given point, and returns our point with the ciphertext behind it.
func seal(point, plain, context []byte) ([]byte, error) {
	theirs, err := ecdh.X25519().NewPublicKey(point)
	if err != nil {
		return nil, fmt.Errorf("the guest's public key: %w", err)
	}
	ours, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	defer eraseKey(ours)
	shared, err := ours.ECDH(theirs)
	if err != nil {
		return nil, fmt.Errorf("the guest's public key: %w", err)
	}
	own := ours.PublicKey().Bytes()
	aead, end, err := newAEAD(shared, point, own, context)
	if err != nil {
		return nil, err
	}
	defer end()
	return append(own, aead.Seal(plain[:0], make([]byte, aead.NonceSize()), plain, context)...), nil
}

// recipient can open one sealed bundle.
type recipient struct{ key *ecdh.PrivateKey }

// newRecipient makes the key. The library would leave a copy that cannot be erased.
func newRecipient() (*recipient, error) {
	scalar := make([]byte, pointSize)
	defer clear(scalar)
	if _, err := rand.Read(scalar); err != nil {
		return nil, err
	}
	key, err := ecdh.X25519().NewPrivateKey(scalar)
	if err != nil {
		return nil, err
	}
	return &recipient{key}, nil
}

func (r *recipient) point() []byte { return r.key.PublicKey().Bytes() }

// open opens what seal returned in place: the plaintext is a part of sealed.
func (r *recipient) open(sealed, context []byte) ([]byte, error) {
	if len(sealed) < pointSize+sealTag {
		return nil, errors.New("sealed secrets are cut short")
	}
	theirs, err := ecdh.X25519().NewPublicKey(sealed[:pointSize])
	if err != nil {
		return nil, err
	}
	shared, err := r.key.ECDH(theirs)
	if err != nil {
		return nil, err
	}
	aead, end, err := newAEAD(shared, r.point(), sealed[:pointSize], context)
	if err != nil {
		return nil, err
	}
	defer end()
	text := sealed[pointSize:]
	plain, err := aead.Open(text[:0], make([]byte, aead.NonceSize()), text, context)
	if err != nil {
		return nil, errors.New("secrets were sealed for another step or have been changed")
	}
	return plain, nil
}

func (r *recipient) erase() { eraseKey(r.key) }

// newAEAD derives the key and erases the shared secret. end erases the key.
func newAEAD(shared, guest, host, context []byte) (aead cipher.AEAD, end func(), err error) {
	defer clear(shared)
	in := binary.BigEndian.AppendUint32(make([]byte, 0, 4+3*pointSize+len(context)), 1)
	for _, part := range [][]byte{shared, guest, host, context} {
		in = append(in, part...)
	}
	defer clear(in)
	key := sha256.Sum256(in)
	defer clear(key[:])
	block, err := aes.NewCipher(key[:])
	if err != nil {
		return nil, nil, err
	}
	if aead, err = cipher.NewGCM(block); err != nil {
		return nil, nil, err
	}
	return aead, func() { erase.Object(block); erase.Object(aead) }, nil
}

// eraseKey zeroes the scalar in the library's key, for which the library has no function.
func eraseKey(k *ecdh.PrivateKey) {
	clear(reflect.ValueOf(k).Elem().FieldByName("privateKey").Bytes())
	runtime.KeepAlive(k)
}
