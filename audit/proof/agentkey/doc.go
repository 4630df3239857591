// Package agentkey signs with a key that an SSH agent holds (draft-ietf-sshm-ssh-agent is its
// protocol): OpenSSH's ssh-agent, gpg-agent, or any program that speaks the protocol on a Unix
// socket. An agent can keep the key on a token. Custody never has the private key; its manifests and
// checkpoints look the same as with a key in a file.
//
// An agent signs the very bytes that it is given with an Ed25519 key, which is what a signed note
// needs. Keys of other types, and those of FIDO tokens (sk-ssh-ed25519), which sign something else, do not fit.
package agentkey
