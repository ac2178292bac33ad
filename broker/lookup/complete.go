package lookup

import (
	"context"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/view/inventory"
)

// completeTimeout limits how long a list waits for the machines' workers. After that, the list falls back to the view's
// data.
const completeTimeout = time.Second

// Complete fills in the parts of the machines in list that the view lacks, such as environment and files. It requests
// them from the machines' workers. If a worker does not answer, its machines are marked as unreachable and remain
// incomplete. Workers that are already unreachable according to the view are not asked.
func (k *Machines) Complete(ctx context.Context, app *bourse.App, list []*inventory.Listed) []*inventory.Listed {
	asked := map[bourse.WorkerID]bool{}
	var members []bourse.Member
	for _, l := range list {
		if l.Complete || l.HostStatus != machinesapi.HostOK || asked[l.Worker] {
			continue
		}
		if owner, ok := k.Directory.ByTag(l.ID.Tag()); ok && owner.ID == l.Worker {
			asked[l.Worker] = true
			members = append(members, owner)
		}
	}
	if len(members) == 0 {
		return list
	}
	ctx, cancel := context.WithTimeout(ctx, min(k.Timeout, completeTimeout))
	defer cancel()
	now, silent := map[bourse.MachineID]*bourse.Machine{}, map[bourse.WorkerID]bool{}
	for _, a := range k.askMachines(ctx, members, fabric.MachinesQuery{App: app.Name, AppID: app.ID}) {
		silent[a.From.ID] = a.Err != nil
		for i := range a.Got {
			now[a.Got[i].ID] = &a.Got[i]
		}
	}
	out := make([]*inventory.Listed, 0, len(list))
	for _, l := range list {
		switch m, there := now[l.ID]; {
		case l.Complete || !asked[l.Worker]:
		case silent[l.Worker]:
			l.HostStatus = machinesapi.HostUnreachable
		case !there || !m.OwnedBy(app):
			continue // the machine has been destroyed since it was listed
		default:
			l = &inventory.Listed{Machine: *m, HostStatus: machinesapi.HostOK, Complete: true}
		}
		out = append(out, l)
	}
	return out
}
