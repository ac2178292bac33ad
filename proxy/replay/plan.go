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

// Apps is what is routed, by app.
type Apps interface {
	// App returns an app's targets, none for one that is not there.
	App(name bourse.AppName) []*route.Target
}

// Issuer is the machine that asks for a replay.
type Issuer struct {
	Target  *route.Target // that the request was routed to
	Machine bourse.MachineID
	Region  bourse.Region
	Port    int // that the client connected to
}

// Way is where a replayed request goes: to a machine of the target that all of it
// allows.
type Destination struct {
	Target   *route.Target
	Regions  []bourse.Choice  // in order of preference, no others; nil: any
	Instance bourse.MachineID // this one only
	Prefer   bourse.MachineID
	Avoid    bourse.MachineID
}

// Reason says why a replay reached no machine.
type Reason string

// The reasons.
const (
	TimedOut    Reason = "timeout"
	Exhausted   Reason = "retries_exhausted"
	NoCandidate Reason = "no_candidate"
)

// Plan returns where a replay goes. CodeNotFound, with a sentence, when there is no
// such machine, app or region among what is routed: an app of another organisation
// or network is not there.
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
		return Destination{}, invalidf("instance %s is the machine that asks, and elsewhere=true", w.Instance)
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
		return Destination{}, notFoundf("app %s has no machine but the one that asks", target.App.Name)
	}
	if w.Regions = availableChoices(r.Regions, there); w.Regions == nil && len(r.Regions) > 0 {
		return Destination{}, notFoundf("app %s has no such machine in %s", target.App.Name, join(r.Regions))
	}
	return w, nil
}

func notFoundf(format string, args ...any) error {
	return bourse.Errorf(bourse.CodeNotFound, "fly-replay: "+format, args...)
}

// planTarget returns the target of the app that is asked for: where the same port
// leads to, else one that speaks HTTP.
func planTarget(r *Replay, from Issuer, apps Apps) (*route.Target, error) {
	own, port := from.Target.App, from.Port
	if p := &from.Target.Port; port < p.First || port > p.Last { // a listener that stands for any
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
		case name == own.Name && t.App.ID != own.ID: // another app has the name now
		case t.Port.First <= port && port <= t.Port.Last && (len(t.Port.Handlers) == 0 || t.Port.Has(workload.HandlerHTTP)):
			return t, nil // without handlers it speaks what the listener does
		case best == nil && t.Port.Has(workload.HandlerHTTP):
			best = t
		}
	}
	if best == nil {
		return nil, notFoundf("there is no app %s here that serves HTTP", bourse.Quoted(string(name)))
	}
	return best, nil
}

// choices resolves regions and aliases against those where there is a machine. What
// is not there is left out: the next in the list is what it is for.
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

// PlanFallback returns where a request goes whose replay reached no machine, by what
// its issuer asked for; false when it goes nowhere.
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

// Source is the value of fly-replay-src: who asked for the replay, and the state as
// it was given. A state that other fields could be read from is quoted.
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

// Failed is the value of fly-replay-failed: what was asked for, by whom, why it was
// not reached, and after how long.
func Failed(r *Replay, from Issuer, why Reason, took time.Duration) string {
	var b strings.Builder
	for _, f := range []struct{ name, value string }{
		{"instance", string(r.Instance + r.PreferInstance)}, // never both
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
