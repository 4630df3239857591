// Package vault has steps' credentials minted by HashiCorp Vault, or OpenBao, which
// has the same API.
//
//	custody's own login   token, AppRole, Kubernetes or JWT; renewed, or logged in again
//	      |  makes, one a step, with a token role
//	a parent              60 s, an orphan: it does not end with the login
//	      |  makes
//	the step's tokens     60 s, at most the step's limit; each reads what its policy names
//	      |  hold
//	leases                of dynamic engines
//
// When a token dies, all below it die. No one but this process can renew any of them,
// and it does so on proof that the step lives, so nothing of a step outlives a custody
// that was killed by more than a minute. A step has one token that reads what it binds
// and never leaves the broker, and one for each secret that is delivered as a token.
//
// Calls are those that Vault and OpenBao share: sys/policies/acl, auth/token and
// sys/leases of https://developer.hashicorp.com/vault/api-docs.
package vault
