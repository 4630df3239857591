// Package api serves runs over HTTP: JSON, server-sent events for live runs, and
// files. openapi.yaml describes it; tests compare the two. It answers
// from a store through package replay, and connects the parts that its caller gives
// it: access control (package access), verification, writers of bundles and exports.
//
//	request -> headers, panics -> route -> Gate: identity, tenant, permission; the access event
//	        -> handler: parameters -> run of that tenant -> Story (cached) or store -> JSON
//
// One table (routes) has all routes. The principal's tenant goes into
// every query, and each run that is found is checked against it again.
package api
