// Package vault mints steps' credentials with HashiCorp Vault, or OpenBao, which has the same API.
//
//	custody's login       token, AppRole, Kubernetes or JWT; renewed, or logged in again
//	      |  makes, one a step, with a token role
//	a parent              60 s, an orphan: it does not end with the login
//	      |  makes
//	the step's tokens     60 s, at most the step's limit; each reads what its policy names
//	      |  hold
//	leases                of dynamic engines
//
// When a token ends, all below it end. Only this process renews them, after a proof that the step still runs, so no
// token outlives a killed custody by more than a minute. A step has one token that reads its secrets and never leaves
// the broker, and one for each secret that is delivered as a token.
//
// The package uses the calls that Vault and OpenBao share: sys/policies/acl, auth/token and sys/leases of
// https://developer.hashicorp.com/vault/api-docs.
package vault
