package openapi

import (
	"net/http"
	"slices"
	"strings"
)

// Call is a call of the Machines API.
type Call struct {
	Pattern string // as a route has it
	Differs string // how, while it is served
	Missing string // why, while it is not
}

// Calls returns the calls of the Machines API, in the order in which documents
// show them.
func Calls() []Call { return slices.Clone(calls) }

const (
	app     = "/v1/apps/{app}"
	machine = app + "/machines/{machine}"
	volume  = app + "/volumes/{volume}"
)

var calls = slices.Concat(
	[]Call{
		{Pattern: "GET /v1/apps", Differs: "an organisation that is left out means all that the caller may use"},
		{Pattern: "POST /v1/apps"},
		{Pattern: "GET " + app},
		{Pattern: "DELETE " + app, Differs: "without force machines that run are asked about"},
		{Pattern: "POST " + app + "/deploy_token"},

		{Pattern: "GET " + app + "/machines", Differs: "a config has no env, files, processes and containers: ask for the machine"},
		{Pattern: "POST " + app + "/machines", Differs: "422 with every worker's refusal when none has room"},
		{Pattern: "GET " + machine},
		{Pattern: "POST " + machine},
		{Pattern: "DELETE " + machine, Differs: "it answers once the machine is gone"},
		{Pattern: "POST " + machine + "/start"},
		{Pattern: "POST " + machine + "/stop"},
		{Pattern: "POST " + machine + "/restart"},
		{Pattern: "POST " + machine + "/suspend"},
		{Pattern: "POST " + machine + "/signal"},
		{Pattern: "GET " + machine + "/wait"},
		{Pattern: "GET " + machine + "/events", Differs: "up to 1000"},
		{Pattern: "GET " + machine + "/versions"},
		{Pattern: "POST " + machine + "/exec", Differs: "it has no container"},
		{Pattern: "GET " + machine + "/ps", Differs: "times are in milliseconds, rss in bytes; a program of the host without a cgroup has its descendants"},
		{Pattern: "GET " + machine + "/lease"},
		{Pattern: "POST " + machine + "/lease"},
		{Pattern: "DELETE " + machine + "/lease"},
		{Pattern: "POST " + machine + "/cordon"},
		{Pattern: "POST " + machine + "/uncordon"},
		{Pattern: "GET " + machine + "/metadata"},
		{Pattern: "PUT " + machine + "/metadata", Differs: "it leaves the keys that it does not name"},
		{Pattern: "PATCH " + machine + "/metadata"},
		{Pattern: "GET " + machine + "/metadata/{key}"},
		{Pattern: "POST " + machine + "/metadata/{key}"},
		{Pattern: "DELETE " + machine + "/metadata/{key}"},
	},
	missing("a machine's memory does not change while it runs", "GET "+machine+"/memory", "PUT "+machine+"/memory", "POST "+machine+"/memory/reclaim"),
	[]Call{
		{Pattern: "GET /v1/orgs/{org}/machines"},

		{Pattern: "GET " + app + "/volumes"},
		{Pattern: "POST " + app + "/volumes", Differs: "encrypted is false unless it is asked for, and 412 where no worker can; host_dedication_id is refused; 422 with every worker's refusal when none has room"},
		{Pattern: "GET " + volume},
		{Pattern: "PUT " + volume},
		{Pattern: "DELETE " + volume, Differs: "it is gone at once: nothing of it is kept"},
		{Pattern: "PUT " + volume + "/extend"},
		{Pattern: "GET " + volume + "/snapshots"},
		{Pattern: "POST " + volume + "/snapshots", Differs: "it answers once the snapshot is there"},
		{Pattern: "GET /v1/orgs/{org}/volumes", Differs: "one page has all of them"},
	},
	differing("values are sealed, and show_secrets is refused", "GET "+app+"/secrets", "GET "+app+"/secrets/{name}"),
	[]Call{
		{Pattern: "POST " + app + "/secrets"},
		{Pattern: "POST " + app + "/secrets/{name}"},
		{Pattern: "DELETE " + app + "/secrets/{name}"},
	},
	differing("no keys are kept for apps: give a machine its key, and use it there", "GET "+app+"/secretkeys", "GET "+app+"/secretkeys/{rest...}",
		"POST "+app+"/secretkeys/{rest...}", "DELETE "+app+"/secretkeys/{rest...}"),
	differing("an app has one address, in its private network, which follows from its id", "GET "+app+"/ip_assignments", "POST "+app+"/ip_assignments",
		"DELETE "+app+"/ip_assignments/{ip}"),
	differing("certificates are kept by the proxies, not by app: see serve proxy --certificates and --acme", "GET "+app+"/certificates",
		"GET "+app+"/certificates/{rest...}", "POST "+app+"/certificates/{rest...}", "DELETE "+app+"/certificates/{rest...}"),
	[]Call{
		{Pattern: "GET /v1/tokens/current"},
	},
	missing("tokens are opaque: there are no macaroons to make or to judge, and no identities of machines",
		"POST /v1/tokens/oidc", "POST /v1/tokens/kms", "POST /v1/tokens/authenticate", "POST /v1/tokens/authorize"),
	missing("Managed Postgres is a product of its own: run a database on a volume", "GET /v1/postgres", "POST /v1/postgres"),
	[]Call{
		{Pattern: "GET /v1/platform/regions", Differs: "those that have a worker"},
		{Pattern: "POST /v1/platform/placements"},
	},
)

// differing are calls about which the same is to be said; missing are calls that
// are not offered for one reason.
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

// Declined returns what says why a request is not served that the Machines API has; "" of
// any other.
func Declined() func(*http.Request) string {
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

// callOf returns the line about a route, whatever its variables are called; nil
// for a call that is not of the Machines API.
func callOf(pattern string) *Call {
	i := slices.IndexFunc(calls, func(c Call) bool { return Same(c.Pattern, pattern) })
	if i < 0 {
		return nil
	}
	return &calls[i]
}

// Same reports whether two patterns are of the same requests.
func Same(a, b string) bool {
	return parameter.ReplaceAllString(strings.ReplaceAll(a, "...}", "}"), "{}") == parameter.ReplaceAllString(strings.ReplaceAll(b, "...}", "}"), "{}")
}

// added are the members that Bourse has added to types of the Machines API.
var added = map[string]string{
	"CreateMachine": "deadline race first_try reservation",
	"CreateVolume":  "deadline first_try requirements",
	"bourse.Config": "requirements task runtime",
	"Machine":       "app worker order_id port pid starts exit name_conflict warnings host_heard_at stands_in",
	"Volume":        "app worker order_id error host_heard_at updated_at",
}

// ours reports whether Bourse has added a member to a type of the Machines API.
func ours(of, member string) bool { return slices.Contains(strings.Fields(added[of]), member) }
