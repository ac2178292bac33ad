package proxy

import (
	"net/http"
	"slices"
	"strings"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/proxy/route"
)

// maxRegions is the maximum number of regions in a client's list.
const maxRegions = 64

// criteriaOf reads the headers with which a client selects machines. A header that forces a machine or region
// overrides the header that only prefers one. Errors: invalid; unavailable if no machine meets a forced criterion.
func criteriaOf(h http.Header, t *route.Target) (w Criteria, err error) {
	if id := h.Get("Fly-Prefer-Instance-Id"); id != "" {
		w.Instance = bourse.MachineID(id)
	}
	if id := h.Get("Fly-Force-Instance-Id"); id != "" {
		w.Instance, w.Only = bourse.MachineID(id), true
	}
	known := w.Instance != "" && slices.ContainsFunc(t.Backends, func(b route.Backend) bool { return b.Machine == w.Instance })
	switch {
	case w.Only && w.Instance.Validate() != nil:
		return w, bourse.Errorf(bourse.CodeInvalid, "fly-force-instance-id is not a machine id")
	case w.Only && !known:
		return w, bourse.Errorf(bourse.CodeUnavailable, "machine %s does not serve this app and port", w.Instance)
	case w.Instance != "" && w.Instance.Validate() != nil:
		w.Instance = "" // ignore an invalid preference
	}
	list := h.Get("Fly-Prefer-Region")
	if force := h.Get("Fly-Force-Region"); force != "" {
		list, w.Force = force, true
	}
	if w.Regions = regionsOf(list, t); w.Force && len(w.Regions) == 0 {
		return w, bourse.Errorf(bourse.CodeUnavailable, "no machine of this app is in the regions listed in fly-force-region")
	}
	return w, nil
}

// regionsOf parses a list of regions and groups of regions (such as "us"), in order of preference.
// It omits regions where the target has no machines.
func regionsOf(list string, t *route.Target) (out [][]bourse.Region) {
	if list == "" {
		return nil
	}
	var known []bourse.Region
	for i := range t.Backends {
		if r := t.Backends[i].Region; !slices.Contains(known, r) {
			known = append(known, r)
		}
	}
	words := strings.SplitN(strings.Trim(list, `"`), ",", maxRegions+1)
	for _, word := range words[:min(len(words), maxRegions)] {
		if word = strings.TrimSpace(word); word == "" {
			continue
		}
		choices, err := bourse.ParseRegions(word, known)
		if err != nil {
			continue // the target has no machine in this region
		}
		for _, c := range choices {
			out = append(out, c)
		}
	}
	return out
}
