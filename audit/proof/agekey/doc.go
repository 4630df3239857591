// Package agekey stores the host's signing key encrypted with age (https://age-encryption.org/v1),
// in host.key.age instead of host.key. What decrypts it is stored elsewhere: an identity in
// a file on another medium, one that systemd passes to a service as a credential, or a
// passphrase. Without it a copy of the disk or of a backup does not contain a usable key.
//
// A process that signs has the key in its memory, where root on the running host can read it.
package agekey
