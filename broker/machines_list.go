package broker

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/broker/endpoint"
	"github.com/bourse-dev/bourse/broker/lookup"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/view/inventory"
)

// listFilter specifies which machines a list contains, and how they are shown.
type listFilter struct {
	lookup.Selection
	deleted, leases, summary bool
}

func readFilter(r *endpoint.Request) (listFilter, error) {
	f := listFilter{Selection: lookup.Select(r.URL.Query())}
	var err error
	for name, into := range map[string]*bool{"include_deleted": &f.deleted, "include_leases": &f.leases, "summary": &f.summary} {
		if *into, err = endpoint.QueryBool(r, name); err != nil {
			return f, err
		}
	}
	return f, nil
}

// gather returns the machines of the app in the request's path. If the path contains no app, it returns the machines of
// all apps that the caller may use. The result is empty for an app without machines; a missing app is an error.
func (h *machineHandler) gather(r *endpoint.Request, f *listFilter) (lookup.Gathered, error) {
	if r.App() == "" && r.Who.Cluster() {
		return h.machines.Gather(r.Context(), nil, f.deleted, f.Region), nil
	}
	if r.App() != "" {
		app, err := h.apps.FindCached(r.Context(), r.App())
		if err != nil {
			return lookup.Gathered{}, err
		}
		return h.machines.Gather(r.Context(), &app, f.deleted, f.Region), nil
	}
	mine, err := h.gate.AppsOf(r)
	var all lookup.Gathered
	for i := range mine {
		all.Add(h.machines.Gather(r.Context(), &mine[i], f.deleted, f.Region))
	}
	return all, err
}

// listMachines lists machines from the view and, in the cases described at
// [lookup.Machines.Gather], from the workers. Only the workers know about destroyed machines.
// Workers that did not answer are listed in a response header, because their machines may be
// missing from the list.
func (h *machineHandler) listMachines(w http.ResponseWriter, r *endpoint.Request) error {
	filter, err := readFilter(r)
	if err != nil {
		return err
	}
	found, err := h.gather(r, &filter)
	if err != nil {
		return err
	}
	if found.Overflow != nil {
		return found.Overflow
	}
	if len(found.Machines) == 0 && found.Asked > 0 && len(found.Missing) == found.Asked && !h.View.InSync() {
		return bourse.Errorf(bourse.CodeUnavailable, "none of %d workers answered", found.Asked)
	}
	conflicts := lookup.NameConflicts(found.Machines)
	wanted, err := h.whole(r, &filter, found.Machines)
	if err != nil {
		return err
	}
	out := []machinesapi.Machine{}
	for _, l := range wanted {
		h.machines.Remember(&l.Machine)
		shown := filter.show(l, h.Now())
		shown.NameConflict = conflicts[l.ID]
		out = append(out, shown)
	}
	endpoint.ListUnreachable(w.Header(), found.Missing)
	return endpoint.WriteJSON(w, http.StatusOK, out)
}

// whole returns the machines that match the filter. For a list of one app, it asks the machines' workers for the
// parts of the configs that are missing from the view. Otherwise, clients that modify a listed config and send it
// back would delete these parts. A config remains incomplete if its worker does not answer. A list of all apps
// contains only the view's data, because it is meant for people and there may be too many workers to ask.
func (h *machineHandler) whole(r *endpoint.Request, f *listFilter, found []*inventory.Listed) ([]*inventory.Listed, error) {
	wanted := slices.DeleteFunc(found, func(l *inventory.Listed) bool { return !f.Has(&l.Machine) || !r.Who.MayMachine(l.ID) })
	switch {
	case f.summary:
		return wanted, nil
	case r.App() == "":
		for _, l := range wanted {
			l.Complete = false
		}
		return wanted, nil
	}
	app, err := h.apps.FindCached(r.Context(), r.App())
	if err != nil {
		return nil, err
	}
	wanted = h.machines.Complete(r.Context(), &app, wanted)
	// Machines may have changed since they were listed, so apply the filter again.
	return slices.DeleteFunc(wanted, func(l *inventory.Listed) bool { return !f.Has(&l.Machine) }), nil
}

func (f *listFilter) show(l *inventory.Listed, now time.Time) machinesapi.Machine {
	if f.summary {
		return machinesapi.SummaryOf(&l.Machine)
	}
	return showListed(l, f.leases, now)
}

// showListed converts a listed machine to the API's type, with its host's status.
func showListed(l *inventory.Listed, lease bool, now time.Time) machinesapi.Machine {
	out := showMachine(&l.Machine, lease, now)
	out.HostStatus = l.HostStatus
	if !l.Complete {
		known := out.Config.Public() // the config may come from a hostile worker
		out.Config, out.IncompleteConfig = nil, &known
	}
	if l.HostStatus != machinesapi.HostOK && !l.HeardAt.IsZero() {
		out.HostHeard = l.HeardAt.UTC().Format(time.RFC3339)
	}
	return out
}

// showMachine converts a machine to the API's type. It includes the machine's lease if lease is
// set.
func showMachine(m *bourse.Machine, lease bool, now time.Time) machinesapi.Machine {
	out := machinesapi.FromMachine(m)
	if lease && !m.Lease.Expired(now) {
		out.Lease = machinesapi.InfoFromLease(m.Lease)
	}
	return out
}

// readTimeout limits how long a read waits for an object's worker before it falls back to the view's data.
const readTimeout = time.Second

// getMachine returns one machine. A destroyed machine is returned as long as its worker keeps the record, because
// clients read the exit code. If the worker is unreachable, getMachine returns the view's data.
func (h *machineHandler) getMachine(w http.ResponseWriter, r *endpoint.Request) error {
	lease, err := endpoint.QueryBool(r, "include_leases")
	if err != nil {
		return err
	}
	_, m, err := h.machineWithTimeout(r, min(h.Timeout, readTimeout))
	if err == nil {
		h.machines.Settle(r.Context(), m.ID)
		out := showMachine(&m, lease, h.Now())
		out.NameConflict = h.machines.Conflict(r.Context(), &m)
		return endpoint.WriteJSON(w, http.StatusOK, out)
	}
	if bourse.CodeOf(err) != bourse.CodeUnavailable {
		return err
	}
	l, ok := h.machines.Copy(r.Context(), bourse.MachineID(r.PathValue("machine")))
	if !ok || !r.MayUse(lookup.OwnerOf(&l.Machine)) {
		return err
	}
	l.HostStatus = machinesapi.HostUnreachable
	out := showListed(&l, lease, h.Now())
	out.NameConflict = h.machines.Conflict(r.Context(), &l.Machine)
	return endpoint.WriteJSON(w, http.StatusOK, out)
}

// defaultEvents is the number of events in a reply if the request does not set a limit.
const defaultEvents = 20

// machineEvents lists a machine's latest events.
func (h *machineHandler) machineEvents(w http.ResponseWriter, r *endpoint.Request) error {
	limit, err := endpoint.QueryInt(r, "limit")
	if err != nil {
		return err
	}
	if limit < 0 {
		return bourse.Errorf(bourse.CodeInvalid, "invalid limit %d: use 1 to %d", limit, machinesapi.MaxEvents)
	}
	limit = min(cmp.Or(limit, defaultEvents), machinesapi.MaxEvents)
	to, err := h.targetOf(r)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), h.Timeout)
	defer cancel()
	events, err := fabric.MachineEvents.Call(ctx, h.Workers, to.worker, fabric.EventsQuery{Machine: to.id, Limit: limit})
	if err != nil {
		return endpoint.WorkerError(r.Context(), to.worker.ID, endpoint.Reading, err)
	}
	return endpoint.WriteJSON(w, http.StatusOK, machinesapi.FromEvents(events[:min(len(events), limit)]))
}
