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

// Addresses serves the addresses of the apps that Apps finds.
type Addresses struct{ Apps *lookup.Apps }

const addressesPath = endpoint.OneApp + "/ip_assignments"

// Routes returns what the handler serves.
func (h *Addresses) Routes() []endpoint.Route {
	return []endpoint.Route{
		endpoint.On("GET "+addressesPath, endpoint.App, h.list).Writes(machinesapi.IPAssignments{}),
		endpoint.On("POST "+addressesPath, endpoint.App, h.assign).MayRead(machinesapi.AssignIP{}).Writes(machinesapi.IPAssignment{}),
		endpoint.On("DELETE "+addressesPath+"/{ip}", endpoint.App, h.release),
	}
}

// Of returns the address of an app: its network's, with the number that no
// worker has in the place of the host, and a part of a hash of its id.
func Of(app *bourse.App) netip.Addr {
	b := bourse.NetworkPrefix(app.PrivateNetwork()).Addr().As16()
	sum := sha256.Sum256([]byte(app.ID))
	copy(b[10:14], sum[:])
	b[15] = 3 // a machine's ends with 2
	return netip.AddrFrom16(b)
}

func assignment(app *bourse.App) machinesapi.IPAssignment {
	return machinesapi.IPAssignment{IP: Of(app), Region: "global", CreatedAt: app.CreatedAt.UTC().Truncate(time.Second)}
}

func (h *Addresses) list(w http.ResponseWriter, r *endpoint.Request) error {
	app, err := h.Apps.Recall(r.Context(), r.App())
	if err != nil {
		return err
	}
	return endpoint.WriteJSON(w, http.StatusOK, machinesapi.IPAssignments{IPs: []machinesapi.IPAssignment{assignment(&app)}})
}

// kinds are what clients ask for; those of egress are not offered.
var kinds = []string{"", "v4", "v6", "shared_v4", "private_v6"}

// assign answers with the address that the app has, whichever kind is asked for:
// clients ask for one of each kind before the first deploy of an app with services,
// and stop if they get none. A warning says when the address is of another kind.
func (h *Addresses) assign(w http.ResponseWriter, r *endpoint.Request) error {
	var in machinesapi.AssignIP
	if err := endpoint.Decode(w, r, true, &in); err != nil {
		return err
	}
	app, err := h.Apps.Recall(r.Context(), r.App())
	if err != nil {
		return err
	}
	if !slices.Contains(kinds, in.Type) {
		return &endpoint.Reply{Status: http.StatusUnprocessableEntity, Err: bourse.Errorf(bourse.CodeInvalid,
			"invalid type %s: an app has its private address and no other; what it sends comes from its worker's", bourse.Quoted(in.Type))}
	}
	if in.Type != "" && in.Type != "private_v6" {
		endpoint.Warn(w, bourse.Warning{Field: "type", Message: "an app has its private_v6 address and no other: the reply is that one, and nothing was assigned"})
	}
	return endpoint.WriteJSON(w, http.StatusOK, assignment(&app))
}

// release says that an address stays with its app.
func (h *Addresses) release(_ http.ResponseWriter, r *endpoint.Request) error {
	app, err := h.Apps.Recall(r.Context(), r.App())
	if err != nil {
		return err
	}
	if ip, err := netip.ParseAddr(r.PathValue("ip")); err != nil || ip != Of(&app) {
		return bourse.Errorf(bourse.CodeNotFound, "address not found: app %s has %s and no other", app.Name, Of(&app))
	}
	return bourse.Errorf(bourse.CodeFailedPrecondition, "the address %s follows from the app's id: it goes with the app", Of(&app))
}
