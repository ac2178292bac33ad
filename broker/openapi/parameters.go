package openapi

import (
	"slices"

	"github.com/bourse-dev/bourse"
)

// queryParameter returns the OpenAPI parameter object of a route's query parameter.
func queryParameter(pattern, name string) object {
	out := object{"name": name, "in": "query", "schema": schemaOf(pattern, name)}
	if name == "state" { // the parameter's value is a comma-separated list
		out["style"], out["explode"] = "form", false
	}
	return out
}

// schemaOf returns the schema of a parameter's value.
func schemaOf(pattern, name string) object {
	switch {
	case slices.Contains(flags, name):
		return object{"type": "boolean"}
	case slices.Contains(numbers, name):
		return object{"type": "integer", "minimum": 0}
	case name == "state":
		return object{"type": "array", "items": object{"type": "string", "enum": statesOf(pattern)}}
	case name == "sort_by":
		return object{"type": "string", "enum": list("pid", "stime", "rtime", "cpu", "rss", "command", "directory")}
	case name == "order":
		return object{"type": "string", "enum": list("asc", "desc")}
	case name == "updated_after":
		return object{"type": "string", "format": "date-time"}
	}
	return object{"type": "string"}
}

var (
	flags   = list("ended", "follow", "force", "force_stop", "include_deleted", "include_leases", "kill", "made", "show_secrets", "summary")
	numbers = list("from", "limit", "min_version", "port", "tail", "ttl", "version")
)

// statesOf returns the valid values of a route's state parameter. For the wait endpoint, these are the states that a
// client can wait for. For other routes, which filter a list by state, these are all machine states.
func statesOf(pattern string) []string {
	if pattern == "GET "+machine+"/wait" {
		return list("started", "stopped", "suspended", "destroyed", "failed", "settled")
	}
	var out []string
	for _, s := range bourse.States() {
		out = append(out, string(s))
	}
	return out
}
