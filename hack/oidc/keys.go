package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"fmt"
	"sync"

	"github.com/go-jose/go-jose/v3"
)

// keys are the published signing keys, oldest first. The last one signs tokens.
type keys struct {
	mu    sync.Mutex // guards the fields below
	all   []jose.JSONWebKey
	made  int
	asked int // requests for the public keys
}

func newKeys() *keys {
	k := &keys{}
	k.rotate(jose.RS256, false)
	return k
}

// rotate makes a new key; the old ones stay published if keep is set.
func (k *keys) rotate(alg jose.SignatureAlgorithm, keep bool) {
	var key any
	var err error
	if alg == jose.ES256 {
		key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	} else {
		key, err = rsa.GenerateKey(rand.Reader, 2048)
	}
	if err != nil {
		panic(err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if !keep {
		k.all = nil
	}
	k.made++
	k.all = append(k.all, jose.JSONWebKey{Key: key, KeyID: fmt.Sprintf("key-%d", k.made), Algorithm: string(alg), Use: "sig"})
}

func (k *keys) current() *jose.JSONWebKey {
	k.mu.Lock()
	defer k.mu.Unlock()
	last := k.all[len(k.all)-1]
	return &last
}

func (k *keys) public() jose.JSONWebKeySet {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.asked++
	var set jose.JSONWebKeySet
	for _, key := range k.all {
		set.Keys = append(set.Keys, key.Public())
	}
	return set
}

func (k *keys) count() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.asked
}
