package tenant

import (
	"crypto/sha256"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"github.com/bourse-dev/bourse"

	"github.com/bourse-dev/bourse/broker/endpoint"
	"github.com/bourse-dev/bourse/broker/lookup"
	"github.com/bourse-dev/bourse/machinesapi"
)

// Addresses serves the endpoints for the IP addresses of apps.
type Addresses struct{ Apps *lookup.Apps }

const addressesPath = endpoint.OneApp + "/ip_assignments"

// Routes returns the handler's routes.
func (h *Addresses) Routes() []endpoint.Route {
	return []endpoint.Route{
		endpoint.On("GET "+addressesPath, endpoint.App, h.list).Writes(machinesapi.IPAssignments{}),
		endpoint.On("POST "+addressesPath, endpoint.App, h.assign).MayRead(machinesapi.AssignIP{}).Writes(machinesapi.IPAssignment{}),
		endpoint.On("DELETE "+addressesPath+"/{ip}", endpoint.App, h.release),
	}
}

// Of returns an app's address. The address consists of the prefix of the app's network, part of a hash of the app's ID,
// and a host number that no machine uses.
func Of(app *bourse.App) netip.Addr {
	b := bourse.NetworkPrefix(app.PrivateNetwork()).Addr().As16()
	sum := sha256.Sum256([]byte(app.ID))
	copy(b[10:14], sum[:])
	b[15] = 3 // machines' addresses end with 2
	return netip.AddrFrom16(b)
}

func assignment(app *bourse.App) machinesapi.IPAssignment {
	return machinesapi.IPAssignment{IP: Of(app), Region: "global", CreatedAt: app.CreatedAt.UTC().Truncate(time.Second)}
}

func (h *Addresses) list(w http.ResponseWriter, r *endpoint.Request) error {
	app, err := h.Apps.FindCached(r.Context(), r.App())
	if err != nil {
		return err
	}
	return endpoint.WriteJSON(w, http.StatusOK, machinesapi.IPAssignments{IPs: []machinesapi.IPAssignment{assignment(&app)}})
}

// addressTypes contains the address types that clients may request. Egress addresses are not supported.
var addressTypes = []string{"", "v4", "v6", "shared_v4", "private_v6"}

// assign replies with the app's only address, regardless of the requested type. If the type does not match, the reply
// contains a warning. Clients request an address of each type before they first deploy an app with services, and give
// up if a request fails.
func (h *Addresses) assign(w http.ResponseWriter, r *endpoint.Request) error {
	var in machinesapi.AssignIP
	if err := endpoint.Decode(w, r, true, &in); err != nil {
		return err
	}
	app, err := h.Apps.FindCached(r.Context(), r.App())
	if err != nil {
		return err
	}
	if !slices.Contains(addressTypes, in.Type) {
		return &endpoint.Reply{Status: http.StatusUnprocessableEntity, Err: bourse.Errorf(bourse.CodeInvalid,
			"invalid type %s: an app has only its private address, and its outgoing connections use its worker's address", bourse.Quoted(in.Type))}
	}
	if in.Type != "" && in.Type != "private_v6" {
		endpoint.Warn(w, bourse.Warning{Field: "type", Message: "an app has only its private_v6 address; no new address was assigned, and the reply contains the existing one"})
	}
	return endpoint.WriteJSON(w, http.StatusOK, assignment(&app))
}

// release always fails, because an app keeps its address as long as it exists.
func (h *Addresses) release(_ http.ResponseWriter, r *endpoint.Request) error {
	app, err := h.Apps.FindCached(r.Context(), r.App())
	if err != nil {
		return err
	}
	if ip, err := netip.ParseAddr(r.PathValue("ip")); err != nil || ip != Of(&app) {
		return bourse.Errorf(bourse.CodeNotFound, "address not found: app %s has only %s", app.Name, Of(&app))
	}
	return bourse.Errorf(bourse.CodeFailedPrecondition, "address %s is derived from the app's ID and exists as long as the app", Of(&app))
}
