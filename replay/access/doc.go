// Package access controls access to the record through custody serve, and records each
// access before anything is shown.
//
// A Gate guards each route. It checks, in this order:
//
//	host      is the server known by the name that the request gives (DNS rebinding)
//	origin    does no other site ask with this browser's cookie (CSRF)
//	identity  one credential: a token of Custody's, a JWT of the OIDC issuer, a session's cookie
//	tenant    one that was granted to them
//	role      enough for the route
//	rate      not too often
//	record    the access event is durable
//
// and only then runs the handler. Refused requests are recorded, too. Nothing is open by
// default: without tokens, without an issuer and without the printed one-time token there
// is no access.
//
// Credentials are kept as SHA-256 only. Those that Custody makes have 256 random bits, so
// a slower hash gains nothing.
package access
