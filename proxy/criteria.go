package proxy

import (
	"net/http"
	"slices"
	"strings"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/proxy/route"
)

// maxRegions bounds what a client may list.
const maxRegions = 64

// wantOf reads where a client asks to be sent to. What it forces comes before what
// it prefers. Codes: invalid, unavailable (no machine is where it must be).
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
		return w, bourse.Errorf(bourse.CodeInvalid, "fly-force-instance-id is no machine's id")
	case w.Only && !known:
		return w, bourse.Errorf(bourse.CodeUnavailable, "machine %s serves nothing here", w.Instance)
	case w.Instance != "" && w.Instance.Validate() != nil:
		w.Instance = "" // a preference: it is not worth a refusal
	}
	list := h.Get("Fly-Prefer-Region")
	if force := h.Get("Fly-Force-Region"); force != "" {
		list, w.Force = force, true
	}
	if w.Regions = regionsOf(list, t); w.Force && len(w.Regions) == 0 {
		return w, bourse.Errorf(bourse.CodeUnavailable, "no machine of this app is in the regions that fly-force-region names")
	}
	return w, nil
}

// regionsOf reads a list of regions and of names for several ("us"), in order of
// preference. Regions without a machine of the target are left out.
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
			continue // a region without a machine is no place to go
		}
		for _, c := range choices {
			out = append(out, c)
		}
	}
	return out
}
