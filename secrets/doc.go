// Package secrets gives each step credentials with a lifetime of one minute.
//
// A source is the value of "from" in custody.yaml: env:NAME, file:PATH, cmd:COMMAND or vault:PATH#FIELD. A Broker mints
// the credentials of a step. The Issuer keeps the step's lease: it records each operation, renews the credentials after
// each proof that the step still runs, and revokes them at the step's end, or immediately when a credential occurs out
// of scope.
//
//	Begin            Deliver             Renew (proof of life)
//	------> minted ----------> delivered -------+
//	           |                 |    ^         |
//	           |                 |    +---------+
//	           |   End, anomaly, expiry, broker lost it
//	           +-----------------+-----> over: revoked or expired
//
// The comment of Lease has the complete diagram. Neither changes of the host's clock nor its sleep make a lease longer:
// a grant is valid for TTL from its request, in a time that includes sleep and only increases.
//
// The value of a header secret never enters the step: the gateway gets it from Issuer.Credential. The step has a
// placeholder, which is made for one lease and recognized for the rest of the run.
//
// Values are only in memory, and no error contains one.
package secrets
