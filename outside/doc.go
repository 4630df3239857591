// Package outside speaks to servers for a process of root, which then parses none of their bytes: it starts a process without privileges,
// which has the network of the host, resolves names, and speaks TLS, HTTP and JSON.
//
//	root: Vault --privsep--> process: vault.Broker --https--> Vault
//	      Place <-privsep--
//
// The process has a uid of its own, no capability, and no file of the host but the CA certificates and what name resolution reads. What
// it needs besides, root gives it as contents or descriptors, for one login and one run.
package outside
