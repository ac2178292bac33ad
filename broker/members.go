package broker

import (
	"cmp"
	"net/http"
	"slices"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/broker/endpoint"
	"github.com/bourse-dev/bourse/broker/lookup"
	"github.com/bourse-dev/bourse/machinesapi"
)

// memberHandler serves /v1/members, where operators list and remove the cluster's servers
// of any role.
type memberHandler struct {
	*Config
	machines *lookup.Machines
}

const oneMember = "/v1/members/{member}"

func (h *memberHandler) routes() []endpoint.Route {
	return []endpoint.Route{
		endpoint.On("GET /v1/members", endpoint.Cluster, h.list).Writes(machinesapi.MemberList{}),
		endpoint.On("DELETE "+oneMember, endpoint.Cluster, h.remove).Writes(machinesapi.Member{}).Asks("force"),
	}
}

func (h *memberHandler) list(w http.ResponseWriter, r *endpoint.Request) error {
	list, err := h.all(r)
	if err != nil {
		return err
	}
	return endpoint.WriteJSON(w, http.StatusOK, machinesapi.MemberList{Members: list})
}

// all returns the running members, the absent workers, the brokers and proxies that are
// down but have valid certificates, and the servers that were removed and have not joined
// again.
func (h *memberHandler) all(r *endpoint.Request) ([]machinesapi.Member, error) {
	list := []machinesapi.Member{}
	seen := map[bourse.WorkerID]bool{}
	for _, m := range h.Members() {
		seen[m.ID] = true
		list = append(list, machinesapi.Member{ID: m.ID, Role: m.Role, Region: m.Region, Address: m.Address, Status: machinesapi.MemberOK})
	}
	_, absent := h.Directory.All()
	for _, w := range h.machines.AbsentWorkers(r.Context(), absent) {
		if seen[w.ID] {
			continue
		}
		seen[w.ID] = true
		list = append(list, machinesapi.Member{
			ID: w.ID, Role: bourse.RoleWorker, Region: w.Region, Address: w.Address, Status: machinesapi.MemberStatus(w.Status), Since: w.Since,
			Machines: w.Machines, Volumes: w.Volumes,
		})
	}
	certified, err := h.View.Certified(r.Context())
	if err != nil {
		return nil, err
	}
	for _, m := range certified {
		if !seen[m.ID] && m.ExpiresAt.After(h.Now()) {
			seen[m.ID] = true
			list = append(list, machinesapi.Member{ID: m.ID, Role: m.Role, Region: m.Region, Status: machinesapi.MemberDown, Since: m.HeardAt.UTC()})
		}
	}
	removed, err := h.View.Removed(r.Context())
	if err != nil {
		return nil, err
	}
	for _, m := range removed {
		if !seen[m.ID] {
			list = append(list, machinesapi.Member{ID: m.ID, Role: m.Role, Region: m.Region, Status: machinesapi.MemberRemoved, Since: m.At.UTC()})
		}
	}
	slices.SortFunc(list, func(x, y machinesapi.Member) int {
		return cmp.Or(cmp.Compare(x.Role, y.Role), cmp.Compare(x.Region, y.Region), cmp.Compare(x.ID, y.ID))
	})
	return list, nil
}

// remove removes a server and its objects from the cluster. If servers have certificates, it also locks the removed
// server out. A running server is removed only if force is set and servers have certificates. Errors: not_found if the
// server is unknown and these two conditions are not met; failed_precondition if the server is running and they are not
// met, or if it is this broker.
func (h *memberHandler) remove(w http.ResponseWriter, r *endpoint.Request) error {
	force, err := endpoint.QueryBool(r, "force")
	if err != nil {
		return err
	}
	id := bourse.WorkerID(r.PathValue("member"))
	list, err := h.all(r)
	if err != nil {
		return err
	}
	m := machinesapi.Member{ID: id, Status: machinesapi.MemberDown}
	if i := slices.IndexFunc(list, func(m machinesapi.Member) bool { return m.ID == id }); i >= 0 {
		m = list[i]
	} else if id.Validate() != nil || !force || !h.LockOut { // for example, a server that has never run
		return bourse.Errorf(bourse.CodeNotFound, "member %s not found", bourse.Quoted(string(id)))
	}
	switch {
	case m.Status != machinesapi.MemberOK:
	case id == h.Self:
		return bourse.Errorf(bourse.CodeFailedPrecondition, "%s is this broker: use another broker to remove it", id)
	case !h.LockOut:
		return bourse.Errorf(bourse.CodeFailedPrecondition, "%s %s is running: stop it first; without certificates, it cannot be locked out", m.Role, id)
	case !force:
		return bourse.Errorf(bourse.CodeFailedPrecondition, "%s %s is running: stop it first, or use force to lock it out", m.Role, id)
	}
	if err := h.View.RemoveMember(r.Context(), h.memberOf(&m)); err != nil {
		return err
	}
	return endpoint.WriteJSON(w, http.StatusOK, m)
}

// memberOf converts an entry of the list to a bourse.Member. If the server is a worker, it also
// sets the member's tag.
func (h *memberHandler) memberOf(m *machinesapi.Member) bourse.Member {
	out := bourse.Member{ID: m.ID, Role: m.Role, Region: m.Region, Address: m.Address}
	here, absent := h.Directory.All()
	for _, w := range here {
		if w.ID == m.ID {
			out.Tag = w.Tag
		}
	}
	for _, w := range absent {
		if w.ID == m.ID {
			out.Tag = w.Tag
		}
	}
	return out
}

// proxies returns the members that are proxies.
func (c *Config) proxies() []bourse.Member {
	return slices.DeleteFunc(slices.Clone(c.Members()), func(m bourse.Member) bool { return m.Role != bourse.RoleProxy })
}
