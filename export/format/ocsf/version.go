package ocsf

import (
	"fmt"
	"strings"
)

// Default is the default version.
const Default = "1.8.0"

// Versions returns the supported versions, oldest first.
func Versions() []string { return []string{"1.1.0", "1.3.0", "1.5.0", "1.8.0", "1.9.0"} }

// minor is the second number of a version: within 1.x, attributes are added and almost never removed, so that one
// number determines which exist.
type minor int

// has reports whether the version has an attribute that was added in a version.
func (v minor) has(since minor) bool { return v >= since }

// The versions in which used attributes were added. Source: the changelog of
// github.com/ocsf/ocsf-schema, and the compiled schemas of 1.1.0, 1.3.0, 1.5.0 and 1.8.0.
const (
	sinceAppName  minor = 2 // actor.app_name; before: invoked_by
	sinceEventLog minor = 3 // the class Event Log Activity
	sinceState    minor = 3 // device_config_state_change.state
	sinceHash     minor = 3 // observable 8 is captioned Hash; before it was File Hash
	// In 1.4.0 the profiles host and security_control came to every class, the latter with
	// confidence, is_alert, policy and the action Observed, and action_id was no longer required.
	sinceControl     minor = 4
	sinceLooser      minor = 4 // http_response and dst_endpoint are no longer required
	sinceAnyHostname minor = 4 // hostname_t may have any form
	sinceWorkingDir  minor = 4 // process.working_directory
	sinceBodyLength  minor = 4 // http_request.body_length
	sincePatchMethod minor = 5 // the value PATCH of http_request.http_method
	sincePathSeen    minor = 5 // the observable File Path
	sincePolicyData  minor = 5 // policy.data
	sinceTruncated   minor = 6 // metadata.is_truncated
	sincePatch       minor = 8 // the activity Patch of HTTP Activity, 1.6.0 at the earliest
	sinceAI          minor = 8 // the profile ai_operation
	sinceApplication minor = 9 // application in place of app and app_name, which are deprecated
	sinceBadVers     minor = 9 // the correct caption of DNS code 16
)

// parseVersion returns the version as in events, and its second number.
func parseVersion(v string) (string, minor, error) {
	if v == "" {
		v = Default
	}
	for _, known := range Versions() {
		if v == known || v+".0" == known {
			return known, minor(known[2] - '0'), nil
		}
	}
	return "", 0, fmt.Errorf("unknown OCSF version %.20q; use one of %s", v, strings.Join(Versions(), ", "))
}
