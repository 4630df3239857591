// Package agekey keeps the host's signing key encrypted with age (https://age-encryption.org/v1):
// in host.key.age rather than in host.key. What decrypts it stands elsewhere: an identity in
// a file on another medium, one that systemd gives to a service as a credential, or a
// passphrase. A copy of the disk or of a back-up without that is worth nothing.
//
// A process that signs has the key in its memory. Root on the running host can take it from there.
package agekey
