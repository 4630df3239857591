// Package transit signs with a key that never leaves Vault: an ed25519 key of Vault's transit
// secrets engine (https://developer.hashicorp.com/vault/docs/secrets/transit). The host's manifests and
// checkpoints look the same as with a key in a file.
//
//	vault secrets enable transit
//	vault write -f transit/keys/custody-HOST type=ed25519
//
// The token needs read on transit/keys/NAME, update on transit/sign/NAME, and for a rotation
// update on transit/keys/NAME/rotate. host.pub in the host's keys directory selects the version of the key that
// signs, so that rotating the key in Vault alone has no effect on Custody: Rotate first states the change, signed by the
// current version.
package transit
