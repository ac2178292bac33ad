package replay

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/proxy/route"
	"github.com/bourse-dev/bourse/workload"
)

// Apps looks up the targets of apps.
type Apps interface {
	// App returns the targets of an app, or none if the app does not exist.
	App(name bourse.AppName) []*route.Target
}

// Issuer describes the machine that requests a replay, and the request to which it replied.
type Issuer struct {
	Target  *route.Target // the target to which the request was routed
	Machine bourse.MachineID
	Region  bourse.Region
	Port    int // the port to which the client connected
}

// Destination describes the machines to which a request is replayed.
type Destination struct {
	Target   *route.Target
	Regions  []bourse.Choice  // the only regions allowed, in order of preference; nil: any region
	Instance bourse.MachineID // only this machine; "": any machine
	Prefer   bourse.MachineID
	Avoid    bourse.MachineID
}

// Reason is the reason why a replay failed to reach a machine.
type Reason string

// Values of Reason.
const (
	TimedOut    Reason = "timeout"
	Exhausted   Reason = "retries_exhausted"
	NoCandidate Reason = "no_candidate"
)

// Plan returns the destination of a replay. It returns CodeNotFound if the app does not exist or does not serve HTTP,
// or if it has no machine that matches the replay. It returns CodeInvalid if the replay excludes the machine that it
// requests. Apps of other organizations or networks are treated as if they did not exist.
func Plan(r *Replay, from Issuer, apps Apps) (Destination, error) {
	target, err := planTarget(r, from, apps)
	if err != nil {
		return Destination{}, err
	}
	w := Destination{Target: target, Instance: r.Instance, Prefer: r.PreferInstance}
	if r.Elsewhere {
		w.Avoid = from.Machine
	}
	if w.Instance != "" && w.Instance == w.Avoid {
		return Destination{}, invalidf("instance %s is the machine that requests the replay, which elsewhere=true excludes", w.Instance)
	}
	there := map[bourse.Region]bool{}
	found := false
	for i := range target.Backends {
		b := &target.Backends[i]
		if b.Machine == w.Avoid || w.Instance != "" && b.Machine != w.Instance {
			continue
		}
		found, there[b.Region] = true, true
	}
	switch {
	case !found && w.Instance != "":
		return Destination{}, notFoundf("app %s has no machine %s", target.App.Name, w.Instance)
	case !found:
		return Destination{}, notFoundf("app %s has no machine except the one that requests the replay", target.App.Name)
	}
	if w.Regions = availableChoices(r.Regions, there); w.Regions == nil && len(r.Regions) > 0 {
		return Destination{}, notFoundf("app %s has no such machine in %s", target.App.Name, join(r.Regions))
	}
	return w, nil
}

func notFoundf(format string, args ...any) error {
	return bourse.Errorf(bourse.CodeNotFound, "fly-replay: "+format, args...)
}

// planTarget returns the target to which a request is replayed. It is a target of the replay's app: the one that
// serves the request's port or, if there is none, one that serves HTTP.
func planTarget(r *Replay, from Issuer, apps Apps) (*route.Target, error) {
	own, port := from.Target.App, from.Port
	if p := &from.Target.Port; port < p.First || port > p.Last {
		// The port is not one of the target's ports, for example because the listener serves all of the app's ports.
		port = p.First
	}
	name := own.Name
	if r.App != "" {
		name = r.App
	}
	var best *route.Target
	for _, t := range apps.App(name) {
		switch {
		case t.App.Org != own.Org || t.App.Network != own.Network:
		case name == own.Name && t.App.ID != own.ID: // another app has taken the name
		case t.Port.First <= port && port <= t.Port.Last && (len(t.Port.Handlers) == 0 || t.Port.Has(workload.HandlerHTTP)):
			return t, nil // if the port has no handlers, the listener determines the protocol
		case best == nil && t.Port.Has(workload.HandlerHTTP):
			best = t
		}
	}
	if best == nil {
		return nil, notFoundf("no app %s serves HTTP", bourse.Quoted(string(name)))
	}
	return best, nil
}

// availableChoices replaces regions and aliases with the regions that have machines. It omits
// regions without machines, so that the next region in the list applies.
func availableChoices(want []bourse.Region, there map[bourse.Region]bool) (out []bourse.Choice) {
	known := make([]bourse.Region, 0, len(there))
	for r := range there {
		known = append(known, r)
	}
	slices.Sort(known)
	seen := map[bourse.Region]bool{}
	for _, r := range want {
		found, err := bourse.ParseRegions(string(r), known)
		if err != nil {
			continue
		}
		var choice bourse.Choice
		for _, region := range found[0] {
			if !seen[region] {
				seen[region] = true
				choice = append(choice, region)
			}
		}
		if len(choice) > 0 {
			out = append(out, choice)
		}
	}
	return out
}

// PlanFallback returns the destination for a request whose replay failed to reach a machine. It returns false if the
// replay has no fallback.
func PlanFallback(r *Replay, from Issuer) (Destination, bool) {
	switch r.Fallback {
	case ForceSelf:
		return Destination{Target: from.Target, Instance: from.Machine}, true
	case PreferSelf:
		return Destination{Target: from.Target, Prefer: from.Machine}, true
	case NoFallback:
	}
	return Destination{}, false
}

// Source returns the value of the fly-replay-src header. The value contains the issuer and the state. The state is
// not changed, but it is quoted if it could be mistaken for other fields.
func Source(from Issuer, at time.Time, state string) string {
	s := fmt.Sprintf("instance=%s;region=%s;t=%d", from.Machine, from.Region, at.UnixMicro())
	if state != "" {
		s += ";state=" + quoteState(state)
	}
	return s
}

func quoteState(s string) string {
	if !strings.ContainsAny(s, `;"\`) && strings.TrimSpace(s) == s {
		return s
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}

// Failed returns the value of the fly-replay-failed header. It contains the requested destination, the issuer, the
// reason for the failure and the elapsed time.
func Failed(r *Replay, from Issuer, why Reason, took time.Duration) string {
	var b strings.Builder
	for _, f := range []struct{ name, value string }{
		{"instance", string(r.Instance + r.PreferInstance)}, // at most one of these is set
		{"app", string(r.App)},
		{"region", join(r.Regions)},
		{"replay_source", string(from.Machine)},
		{"reason", string(why)},
	} {
		if strings.Contains(f.value, ",") {
			f.value = `"` + f.value + `"`
		}
		if f.value != "" {
			b.WriteString(f.name + "=" + f.value + ";")
		}
	}
	fmt.Fprintf(&b, "elapsed_ms=%d", took.Milliseconds())
	return b.String()
}

func join(list []bourse.Region) string {
	words := make([]string, len(list))
	for i, r := range list {
		words[i] = string(r)
	}
	return strings.Join(words, ",")
}
