package openapi

import (
	"net/http"
	"slices"
	"strings"
)

// Call describes a Machines API call and whether Bourse serves it.
type Call struct {
	Pattern string // in the form of route patterns
	Differs string // how Bourse's version differs from the original; empty: no difference
	Missing string // why the call is not served; empty: it is served
}

// Calls returns all calls of the Machines API, in the order in which they are documented.
func Calls() []Call { return slices.Clone(calls) }

const (
	app     = "/v1/apps/{app}"
	machine = app + "/machines/{machine}"
	volume  = app + "/volumes/{volume}"
)

var calls = slices.Concat(
	[]Call{
		{Pattern: "GET /v1/apps", Differs: "without an organization, it lists the apps of all organizations that the caller may use"},
		{Pattern: "POST /v1/apps"},
		{Pattern: "GET " + app},
		{Pattern: "DELETE " + app, Differs: "with force=false, it fails if machines are running; without force=true, it fails if the app has volumes or workers do not respond"},
		{Pattern: "POST " + app + "/deploy_token"},

		{Pattern: "GET " + app + "/machines", Differs: "if a machine's worker does not respond, incomplete_config replaces config and omits env, files, processes and containers"},
		{Pattern: "POST " + app + "/machines", Differs: "if no worker has capacity, 422 with every worker's refusal"},
		{Pattern: "GET " + machine},
		{Pattern: "POST " + machine},
		{Pattern: "DELETE " + machine, Differs: "it responds once the machine is destroyed"},
		{Pattern: "POST " + machine + "/start"},
		{Pattern: "POST " + machine + "/stop"},
		{Pattern: "POST " + machine + "/restart"},
		{Pattern: "POST " + machine + "/suspend"},
		{Pattern: "POST " + machine + "/signal"},
		{Pattern: "GET " + machine + "/wait"},
		{Pattern: "GET " + machine + "/events", Differs: "at most 1000 events"},
		{Pattern: "GET " + machine + "/versions"},
		{Pattern: "POST " + machine + "/exec", Differs: "container is not supported"},
		{Pattern: "GET " + machine + "/ps", Differs: "times are in milliseconds, rss in bytes; for a host program without a cgroup, it lists the descendants of the program"},
		{Pattern: "GET " + machine + "/lease"},
		{Pattern: "POST " + machine + "/lease"},
		{Pattern: "DELETE " + machine + "/lease"},
		{Pattern: "POST " + machine + "/cordon"},
		{Pattern: "POST " + machine + "/uncordon"},
		{Pattern: "GET " + machine + "/metadata"},
		{Pattern: "PUT " + machine + "/metadata", Differs: "keys that are not in the request are kept"},
		{Pattern: "PATCH " + machine + "/metadata"},
		{Pattern: "GET " + machine + "/metadata/{key}"},
		{Pattern: "POST " + machine + "/metadata/{key}"},
		{Pattern: "DELETE " + machine + "/metadata/{key}"},
	},
	missing("a running machine's memory cannot be changed", "GET "+machine+"/memory", "PUT "+machine+"/memory", "POST "+machine+"/memory/reclaim"),
	[]Call{
		{Pattern: "GET /v1/orgs/{org}/machines"},

		{Pattern: "GET " + app + "/volumes"},
		{Pattern: "POST " + app + "/volumes", Differs: "encrypted defaults to false, and is refused with 412 if no worker supports it; host_dedication_id is refused; if no worker has capacity, 422 with every worker's refusal"},
		{Pattern: "GET " + volume},
		{Pattern: "PUT " + volume},
		{Pattern: "DELETE " + volume, Differs: "the volume is deleted immediately and cannot be restored"},
		{Pattern: "PUT " + volume + "/extend"},
		{Pattern: "GET " + volume + "/snapshots"},
		{Pattern: "POST " + volume + "/snapshots", Differs: "it responds once the snapshot exists"},
		{Pattern: "GET /v1/orgs/{org}/volumes", Differs: "a single page contains all volumes"},
	},
	differing("values are encrypted and cannot be shown; show_secrets is refused", "GET "+app+"/secrets", "GET "+app+"/secrets/{name}"),
	[]Call{
		{Pattern: "POST " + app + "/secrets"},
		{Pattern: "POST " + app + "/secrets/{name}"},
		{Pattern: "DELETE " + app + "/secrets/{name}"},
	},
	differing("Bourse stores no keys for apps: pass the key to a machine as a secret, and use it there", "GET "+app+"/secretkeys", "GET "+app+"/secretkeys/{rest...}",
		"POST "+app+"/secretkeys/{rest...}", "DELETE "+app+"/secretkeys/{rest...}"),
	differing("an app has exactly one address, in its private network, derived from its id", "GET "+app+"/ip_assignments", "POST "+app+"/ip_assignments",
		"DELETE "+app+"/ip_assignments/{ip}"),
	differing("certificates are stored by the proxies, not per app: see serve proxy --certificates and --acme", "GET "+app+"/certificates",
		"GET "+app+"/certificates/{rest...}", "POST "+app+"/certificates/{rest...}", "DELETE "+app+"/certificates/{rest...}"),
	[]Call{
		{Pattern: "GET /v1/tokens/current"},
	},
	missing("tokens are opaque: Bourse has no macaroons and no machine identities",
		"POST /v1/tokens/oidc", "POST /v1/tokens/kms", "POST /v1/tokens/authenticate", "POST /v1/tokens/authorize"),
	missing("Bourse does not offer Managed Postgres: run a database on a volume", "GET /v1/postgres", "POST /v1/postgres"),
	[]Call{
		{Pattern: "GET /v1/platform/regions", Differs: "it lists the regions that have a worker"},
		{Pattern: "POST /v1/platform/placements"},
	},
)

// differing returns a Call for each pattern. All of these calls differ from Fly's in the same way.
func differing(how string, patterns ...string) []Call {
	out := make([]Call, len(patterns))
	for i, pattern := range patterns {
		out[i] = Call{Pattern: pattern, Differs: how}
	}
	return out
}

func missing(why string, patterns ...string) []Call {
	out := make([]Call, len(patterns))
	for i, pattern := range patterns {
		out[i] = Call{Pattern: pattern, Missing: why}
	}
	return out
}

// Unsupported returns a function that checks whether a request is a Machines API call that Bourse does not serve. If
// so, the function returns the reason; otherwise, it returns "".
func Unsupported() func(*http.Request) string {
	mux, why := http.NewServeMux(), map[string]string{}
	for _, c := range calls {
		if c.Missing != "" {
			mux.Handle(c.Pattern, http.NotFoundHandler())
			why[c.Pattern] = c.Missing
		}
	}
	return func(r *http.Request) string {
		_, pattern := mux.Handler(r)
		return why[pattern]
	}
}

// callOf returns a route's entry in calls, or nil if the route is not part of the Machines API. Variable names in the
// pattern are ignored.
func callOf(pattern string) *Call {
	i := slices.IndexFunc(calls, func(c Call) bool { return Same(c.Pattern, pattern) })
	if i < 0 {
		return nil
	}
	return &calls[i]
}

// Same reports whether two patterns match the same requests. Their variables may have different
// names.
func Same(a, b string) bool {
	return parameter.ReplaceAllString(strings.ReplaceAll(a, "...}", "}"), "{}") == parameter.ReplaceAllString(strings.ReplaceAll(b, "...}", "}"), "{}")
}

// added maps the name of a Machines API type to the JSON members that Bourse adds to the type, separated by spaces.
var added = map[string]string{
	"CreateMachine": "deadline race first_try reservation",
	"CreateVolume":  "deadline first_try requirements",
	"bourse.Config": "requirements task runtime allow_emulation",
	"Machine":       "app worker order_id port pid starts exit name_conflict warnings host_heard_at promoted_for",
	"Volume":        "app worker order_id error host_heard_at updated_at",
}

// isAddition reports whether Bourse added the given member to a Machines API type.
func isAddition(of, member string) bool { return slices.Contains(strings.Fields(added[of]), member) }
