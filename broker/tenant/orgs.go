package tenant

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bourse-dev/bourse"

	"github.com/bourse-dev/bourse/broker/endpoint"
	"github.com/bourse-dev/bourse/broker/lookup"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/view/inventory"
)

// OrgMachines serves the endpoint that lists an organization's machines.
type OrgMachines struct {
	Apps     *lookup.Apps
	Machines *lookup.Machines
}

// Routes returns the handler's routes.
func (h *OrgMachines) Routes() []endpoint.Route {
	return []endpoint.Route{endpoint.On("GET /v1/orgs/{org}/machines", endpoint.Token, h.machines).Writes(machinesapi.OrgMachines{}).Asks("include_deleted", "region", "state", "summary", "updated_after", "cursor", "limit")}
}

// page describes the requested part of a list: at most limit machines after a cursor, and only machines that have
// changed since a given time.
type page struct {
	after cursor
	since time.Time
	limit int
}

// maxPage is the maximum number of machines on a page.
const maxPage = 1000

func readPage(r *endpoint.Request) (page, error) {
	query := r.URL.Query()
	limit, err := endpoint.QueryInt(r, "limit")
	if err != nil || limit < 0 {
		return page{}, bourse.Errorf(bourse.CodeInvalid, "invalid limit %s: use 1 to %d", bourse.Quoted(query.Get("limit")), maxPage)
	}
	p := page{limit: min(cmp.Or(limit, maxPage), maxPage)}
	if s := query.Get("updated_after"); s != "" {
		if p.since, err = time.Parse(time.RFC3339Nano, s); err != nil {
			return page{}, bourse.Errorf(bourse.CodeInvalid, "invalid updated_after %s: use a time such as 2026-03-04T12:00:00Z", bourse.Quoted(s))
		}
	}
	p.after, err = parseCursor(query.Get("cursor"))
	return p, err
}

// cursor identifies the last machine of a page by its ID and the time of its last change. The zero cursor is the
// position before all machines.
type cursor struct {
	at int64 // nanoseconds since 1970
	id bourse.MachineID
}

func cursorOf(m *bourse.Machine) cursor { return cursor{m.UpdatedAt.UnixNano(), m.ID} }

func (c cursor) compare(d cursor) int {
	return cmp.Or(cmp.Compare(c.at, d.at), strings.Compare(string(c.id), string(d.id)))
}

func (c cursor) String() string { return strconv.FormatInt(c.at, 36) + "-" + string(c.id) }

func parseCursor(s string) (cursor, error) {
	if s == "" {
		return cursor{}, nil
	}
	at, id, _ := strings.Cut(s, "-")
	n, err := strconv.ParseInt(at, 36, 64)
	c := cursor{n, bourse.MachineID(id)}
	if err != nil || n < 0 || c.id.Validate() != nil {
		return c, bourse.Errorf(bourse.CodeInvalid, "invalid cursor %s: use the next_cursor of the previous page", bourse.Quoted(s))
	}
	return c, nil
}

// machines lists the machines of the organization's apps, limited to apps that the caller may use. The most recently
// changed machines come last, so a machine that changes while a client reads the pages appears again and no machine
// is missed.
func (h *OrgMachines) machines(w http.ResponseWriter, r *endpoint.Request) error {
	want, err := readPage(r)
	if err != nil {
		return err
	}
	deleted, err := endpoint.QueryBool(r, "include_deleted")
	if err != nil {
		return err
	}
	mine, missing, err := h.appsOf(r)
	if err != nil {
		return err
	}
	selected := lookup.Select(r.URL.Query())
	found := h.Machines.Gather(r.Context(), nil, deleted, selected.Region)
	list := slices.DeleteFunc(found.Machines, func(l *inventory.Listed) bool {
		app, ok := mine[l.App]
		return !ok || !l.OwnedBy(&app) || !selected.Has(&l.Machine) || l.UpdatedAt.Before(want.since) || cursorOf(&l.Machine).compare(want.after) <= 0
	})
	slices.SortFunc(list, func(a, b *inventory.Listed) int { return cursorOf(&a.Machine).compare(cursorOf(&b.Machine)) })
	out := machinesapi.OrgMachines{Machines: []machinesapi.OrgMachine{}}
	for _, l := range list[:min(want.limit, len(list))] {
		out.Machines = append(out.Machines, machinesapi.OrgMachineOf(&l.Machine))
		out.LastID, out.LastUpdated = l.ID, l.UpdatedAt.UTC().Format(time.RFC3339Nano)
		if len(out.Machines) == want.limit && len(list) > want.limit {
			out.NextCursor = cursorOf(&l.Machine).String()
		}
	}
	missing = append(missing, found.Missing...)
	out.ErrorRegions = h.regionsOf(missing)
	endpoint.ListUnreachable(w.Header(), missing)
	return endpoint.WriteJSON(w, http.StatusOK, out)
}

// appsOf returns the apps of the organization in the request's path, limited to apps that the caller may use, and the
// workers that did not answer. Errors: forbidden.
func (h *OrgMachines) appsOf(r *endpoint.Request) (map[bourse.AppName]bourse.App, []bourse.WorkerID, error) {
	counts, _ := h.Machines.Count(r.Context(), nil)
	list, missing, err := h.Apps.List(r.Context(), counts)
	if err != nil {
		return nil, nil, err
	}
	org := r.PathValue("org")
	mine := map[bourse.AppName]bourse.App{}
	for _, app := range list {
		if app.Org == org && r.Who.May(app) {
			mine[app.Name] = app
		}
	}
	if len(mine) == 0 && !r.Who.May(bourse.App{Org: org}) {
		return nil, nil, endpoint.ErrForbidden()
	}
	return mine, missing, nil
}

// regionsOf returns the regions of the given workers.
func (h *OrgMachines) regionsOf(ids []bourse.WorkerID) []bourse.Region {
	out := []bourse.Region{}
	for _, m := range h.Machines.Directory.Workers() {
		if slices.Contains(ids, m.ID) && !slices.Contains(out, m.Region) {
			out = append(out, m.Region)
		}
	}
	return out
}
