// Package transit signs with a key that never leaves Vault: an ed25519 key of Vault's transit
// engine (https://developer.hashicorp.com/vault/docs/secrets/transit). The host's manifests and
// checkpoints look the same as with a key in a file.
//
//	vault secrets enable transit
//	vault write -f transit/keys/custody-HOST type=ed25519
//
// The token needs read on transit/keys/NAME, update on transit/sign/NAME, and for a rotation
// update on transit/keys/NAME/rotate. Which of the key's versions signs is said by host.pub in
// the host's keys directory, so that a key that was rotated in Vault alone changes nothing
// here: Rotate states the change first, signed by the version before.
package transit
