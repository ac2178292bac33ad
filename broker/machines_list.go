package broker

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/machinesapi"
)

// MachineReader reads machines where they are.
type MachineReader interface {
	// Machines lists the worker's machines that the query selects.
	Machines(ctx context.Context, to bourse.Member, query fabric.MachinesQuery) ([]bourse.Machine, error)
	// Machine gives a machine with its latest events.
	Machine(ctx context.Context, to bourse.Member, id bourse.MachineID) (bourse.Machine, error)
	// Events gives a machine's latest events, newest first.
	Events(ctx context.Context, to bourse.Member, id bourse.MachineID, limit int) ([]bourse.Event, error)
}

// listFilter says which machines a list shows, and how.
type listFilter struct {
	deleted, leases, summary bool
	region                   bourse.Region
	states                   []string
	metadata                 map[string]string
}

func readFilter(r *request) (listFilter, error) {
	query := r.URL.Query()
	f := listFilter{region: bourse.Region(query.Get("region")), metadata: map[string]string{}}
	var err error
	for name, into := range map[string]*bool{"include_deleted": &f.deleted, "include_leases": &f.leases, "summary": &f.summary} {
		if *into, err = queryBool(r, name); err != nil {
			return f, err
		}
	}
	for _, list := range query["state"] {
		for s := range strings.SplitSeq(list, ",") {
			if s = strings.TrimSpace(s); s != "" {
				f.states = append(f.states, s)
			}
		}
	}
	for key, values := range query {
		if name, ok := strings.CutPrefix(key, "metadata."); ok {
			f.metadata[name] = values[0]
		}
	}
	return f, nil
}

// shows tells whether a machine belongs into the list. Destroyed ones come from
// the workers only when they were asked for.
func (f *listFilter) shows(m *bourse.Machine) bool {
	if f.region != "" && f.region != m.Region {
		return false
	}
	if len(f.states) > 0 && !slices.Contains(f.states, string(m.State)) {
		return false
	}
	for k, v := range f.metadata {
		if got, ok := m.Config.Metadata[k]; !ok || got != v {
			return false
		}
	}
	return true
}

// listMachines asks every worker side by side. Who did not answer is named in
// a header, since its machines are missing.
func (b *Broker) listMachines(w http.ResponseWriter, r *request) error {
	filter, err := readFilter(r)
	if err != nil {
		return err
	}
	members := b.Directory.Workers()
	if filter.region != "" { // a machine stands where its worker does
		members = slices.DeleteFunc(members, func(m bourse.Member) bool { return m.Region != filter.region })
	}
	found, missing := b.findMachines(r.Context(), members, fabric.MachinesQuery{App: r.app(), Deleted: filter.deleted})
	if len(found) == 0 {
		if len(members) > 0 && len(missing) == len(members) {
			return bourse.Errorf(bourse.CodeUnavailable, "none of %d workers answers", len(members))
		}
		if _, err := b.apps.recall(r.Context(), r.app()); err != nil {
			return err // an app without machines is an empty list, no app is an error
		}
	}
	out := []machinesapi.Machine{}
	for i := range found {
		if m := &found[i]; filter.shows(m) {
			b.owners.remember(m.ID, m.App)
			out = append(out, filter.show(m, b.Now()))
		}
	}
	showSilent(w.Header(), missing)
	return writeJSON(w, http.StatusOK, out)
}

func (f *listFilter) show(m *bourse.Machine, now time.Time) machinesapi.Machine {
	if f.summary {
		return machinesapi.SummaryOf(m)
	}
	return showMachine(m, f.leases, now)
}

// showMachine shows a machine, with its lease when that is asked for.
func showMachine(m *bourse.Machine, lease bool, now time.Time) machinesapi.Machine {
	out := machinesapi.FromMachine(m)
	if lease && !m.Lease.Expired(now) {
		out.Lease = machinesapi.InfoFromLease(m.Lease)
	}
	return out
}

// findMachines asks members side by side and gives what they have, oldest
// first, and who did not answer.
func (b *Broker) findMachines(ctx context.Context, members []bourse.Member, query fabric.MachinesQuery) ([]bourse.Machine, []bourse.WorkerID) {
	answers := ask(ctx, b.Patience, members, func(ctx context.Context, to bourse.Member) ([]bourse.Machine, error) {
		return b.Workers.Machines(ctx, to, query)
	})
	var out []bourse.Machine
	for _, a := range answers {
		for i := range a.got {
			if query.App == "" || a.got[i].App == query.App {
				out = append(out, a.got[i])
			}
		}
	}
	slices.SortFunc(out, func(x, y bourse.Machine) int {
		return cmp.Or(x.CreatedAt.Compare(y.CreatedAt), strings.Compare(string(x.ID), string(y.ID)))
	})
	return out, silent(answers)
}

// getMachine shows one machine; destroyed ones too while their worker
// remembers them, since clients read the exit code there.
func (b *Broker) getMachine(w http.ResponseWriter, r *request) error {
	lease, err := queryBool(r, "include_leases")
	if err != nil {
		return err
	}
	_, m, err := b.machineOf(r)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, showMachine(&m, lease, b.Now()))
}

// bounds of the number of events in one reply.
const (
	defaultEvents = 20
	maxEvents     = 50
)

// machineEvents lists a machine's latest events.
func (b *Broker) machineEvents(w http.ResponseWriter, r *request) error {
	limit, err := queryInt(r, "limit")
	if err != nil {
		return err
	}
	if limit < 0 {
		return bourse.Errorf(bourse.CodeInvalid, "invalid limit %d: use 1 to %d", limit, maxEvents)
	}
	limit = min(cmp.Or(limit, defaultEvents), maxEvents)
	to, err := b.targetOf(r)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), b.Patience)
	defer cancel()
	events, err := b.Workers.Events(ctx, to.worker, to.id, limit)
	if err != nil {
		return workerError(r.Context(), to.worker.ID, reading, err)
	}
	return writeJSON(w, http.StatusOK, machinesapi.FromEvents(events[:min(len(events), limit)]))
}
