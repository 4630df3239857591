// Package api serves runs over HTTP: JSON, server-sent events for live runs, and
// files. openapi.yaml describes it; the tests hold both together. It answers
// from a store through package replay, and plugs together what cmd/custody gives
// it: who may (package access), what verifies, what writes bundles and exports.
//
//	request -> headers, panics -> route -> Gate: who, which tenant, may they; the access event
//	        -> handler: parameters -> run of that tenant -> Story (cached) or store -> JSON
//
// Every route stands in one table (routes). The principal's tenant goes into
// every query, and each run that was found is checked against it once more.
package api
