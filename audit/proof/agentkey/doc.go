// Package agentkey signs with a key that an SSH agent holds (draft-ietf-sshm-ssh-agent is its
// protocol): OpenSSH's ssh-agent, gpg-agent, or any program that speaks the protocol on a Unix
// socket. An agent can keep the key on a token. Custody never has the private key; its manifests and
// checkpoints look the same as with a key in a file.
//
// An agent signs exactly the bytes of the request with an Ed25519 key, as a signed note
// requires. Keys of other types, and those of FIDO tokens (sk-ssh-ed25519), sign other data and are not supported.
package agentkey
