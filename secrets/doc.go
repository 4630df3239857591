// Package secrets hands each step credentials that live for a minute.
//
// A source is what custody.yaml writes under "from": env:NAME, file:PATH, cmd:COMMAND or vault:PATH#FIELD. A Broker
// mints what a step binds, the Issuer keeps its lease: it writes each operation down, renews on proof that the step
// lives, and revokes at the step's end, or immediately when a credential occurs where it does not belong.
//
//	Begin            Deliver             Renew (proof of life)
//	------> minted ----------> delivered -------+
//	           |                 |    ^         |
//	           |                 |    +---------+
//	           |   End, anomaly, expiry, broker lost it
//	           +-----------------+-----> over: revoked or expired
//
// Lease draws this in full. No setting of the host's clock makes a lease longer, nor does
// its sleep: a grant counts for TTL from when it was asked for, in time that only goes
// forward.
//
// A header secret never enters the step: the gateway asks Issuer.Credential for it, and
// the step has a placeholder, made for one lease and known again for the rest of the run.
//
// Values are held in memory only, and no error contains one.
package secrets
