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

// listMachines tells what the view has of an app's machines; gather says when
// workers are asked, too. Who of those did not answer is named in a header,
// since machines of theirs may be missing.
func (b *Broker) listMachines(w http.ResponseWriter, r *request) error {
	filter, err := readFilter(r)
	if err != nil {
		return err
	}
	app, err := b.apps.recall(r.Context(), r.app())
	if err != nil {
		return err // an app without machines is an empty list, no app is an error
	}
	found := b.gather(r.Context(), &app, filter.deleted, filter.region)
	if found.overflow != nil {
		return found.overflow
	}
	if len(found.machines) == 0 && found.asked > 0 && len(found.missing) == found.asked && !b.View.Synced() {
		return bourse.Errorf(bourse.CodeUnavailable, "none of %d workers answers", found.asked)
	}
	out := []machinesapi.Machine{}
	conflicts := nameConflicts(found.machines)
	for _, l := range found.machines {
		if filter.shows(&l.Machine) {
			b.owners.remember(l.ID, ownerOf(&l.Machine))
			shown := filter.show(l, b.Now())
			shown.NameConflict = conflicts[l.ID]
			out = append(out, shown)
		}
	}
	showSilent(w.Header(), found.missing)
	return writeJSON(w, http.StatusOK, out)
}

func (f *listFilter) show(l *Listed, now time.Time) machinesapi.Machine {
	if f.summary {
		return machinesapi.SummaryOf(&l.Machine)
	}
	out := showListed(l, f.leases, now)
	config := out.Config.Public() // whether the view told of it, or its owner
	out.Config = &config
	return out
}

// showListed shows a machine with what its worker's word is worth.
func showListed(l *Listed, lease bool, now time.Time) machinesapi.Machine {
	out := showMachine(&l.Machine, lease, now)
	out.HostStatus = l.HostStatus
	if l.HostStatus != machinesapi.HostOK && !l.HeardAt.IsZero() {
		out.HostHeard = l.HeardAt.UTC().Format(time.RFC3339)
	}
	return out
}

// showMachine shows a machine, with its lease when that is asked for.
func showMachine(m *bourse.Machine, lease bool, now time.Time) machinesapi.Machine {
	out := machinesapi.FromMachine(m)
	if lease && !m.Lease.Expired(now) {
		out.Lease = machinesapi.InfoFromLease(m.Lease)
	}
	return out
}

// readPatience bounds the look at a machine's owner where the view has
// something to show instead.
const readPatience = time.Second

// getMachine shows one machine; destroyed ones too while their worker
// remembers them, since clients read the exit code there. Of a worker that
// cannot be reached the view tells what it last heard.
func (b *Broker) getMachine(w http.ResponseWriter, r *request) error {
	lease, err := queryBool(r, "include_leases")
	if err != nil {
		return err
	}
	_, m, err := b.machineWithin(r, min(b.Patience, readPatience))
	if err == nil {
		b.settle(r.Context(), m.ID)
		out := showMachine(&m, lease, b.Now())
		out.NameConflict = b.conflictOf(r.Context(), &m)
		return writeJSON(w, http.StatusOK, out)
	}
	if bourse.CodeOf(err) != bourse.CodeUnavailable {
		return err
	}
	l, ok := b.copyOf(r.Context(), bourse.MachineID(r.PathValue("machine")))
	if !ok || !r.reaches(ownerOf(&l.Machine)) {
		return err
	}
	l.HostStatus = machinesapi.HostUnreachable
	out := showListed(&l, lease, b.Now())
	out.NameConflict = b.conflictOf(r.Context(), &l.Machine)
	return writeJSON(w, http.StatusOK, out)
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
