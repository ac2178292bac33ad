package lookup

import (
	"cmp"
	"context"
	"slices"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/view/inventory"
)

// GatheredVolumes is the result of a search for volumes.
type GatheredVolumes struct {
	Volumes []inventory.ListedVolume // oldest first
	Asked   int                      // number of workers asked in addition to the view
	Missing []bourse.WorkerID        // workers that did not answer
}

// Count returns the number of existing volumes of each app.
func (g *GatheredVolumes) Count() Counts {
	out := Counts{}
	for i := range g.Volumes {
		if v := &g.Volumes[i]; v.State != bourse.VolumeDestroying && v.State != bourse.VolumeDestroyed {
			out[bourse.AppRef{Name: v.App, ID: v.AppID}]++
		}
	}
	return out
}

// Gather lists the volumes of some apps, in the same way as [Machines.Gather].
func (k *Volumes) Gather(ctx context.Context, apps []bourse.App) GatheredVolumes {
	var query fabric.VolumesQuery // the empty query selects the volumes of all apps
	if len(apps) == 1 {
		query.App, query.AppID = apps[0].Name, apps[0].ID
	}
	app := query.App
	known := k.fresh.of(app) // must happen before the view is read; see fresh.of
	rows, err := k.View.Volumes(ctx, inventory.VolumeFilter{App: app})
	if err != nil {
		k.viewFailed(ctx, err)
	}
	var members []bourse.Member
	if err != nil || !k.View.InSync() || (len(rows) == 0 && !k.recorded(ctx, app)) {
		members = k.Directory.Workers()
	}
	answers := k.Ask(ctx, members, query)
	u := volumeUnion{byID: map[bourse.VolumeID]inventory.ListedVolume{}, heard: map[bourse.WorkerID]bool{}}
	for _, a := range answers {
		u.answer(&a)
	}
	for i := range rows {
		row := &rows[i]
		if !k.owns(row.Worker, row.ID.Tag()) {
			continue
		}
		u.add(row)
		k.fresh.sawInView(row.ID, row.UpdatedAt)
	}
	for _, v := range known {
		u.add(&inventory.ListedVolume{Volume: v, HostStatus: machinesapi.HostOK})
	}
	return GatheredVolumes{u.sorted(apps), len(members), Unresponsive(answers)}
}

// Ask requests volumes from several workers in parallel.
func (k *Volumes) Ask(ctx context.Context, members []bourse.Member, query fabric.VolumesQuery) []Answer[[]bourse.Volume] {
	return Ask(ctx, k.Timeout, members, Asking(k.Workers, &fabric.VolumeList, query))
}

// volumeUnion merges volume data from several sources. A worker's answer is complete, so it replaces all other data
// about the worker's volumes. For workers that did not answer, the result contains the latest versions from the
// view and recent replies.
type volumeUnion struct {
	byID  map[bourse.VolumeID]inventory.ListedVolume
	heard map[bourse.WorkerID]bool // the workers that were asked, and whether they answered
}

func (u *volumeUnion) answer(a *Answer[[]bourse.Volume]) {
	u.heard[a.From.ID] = a.Err == nil
	for _, v := range a.Got {
		u.byID[v.ID] = inventory.ListedVolume{Volume: v, HostStatus: machinesapi.HostOK}
	}
}

func (u *volumeUnion) add(l *inventory.ListedVolume) {
	answered, asked := u.heard[l.Worker]
	if answered {
		return
	}
	next := *l
	if asked {
		next.HostStatus = machinesapi.HostUnreachable
	}
	if known, ok := u.byID[l.ID]; ok {
		if !known.UpdatedAt.Before(l.UpdatedAt) {
			return
		}
		// A cached reply says nothing about the host's current status, so keep the status from the view.
		next.HostStatus, next.HeardAt = known.HostStatus, known.HeardAt
	}
	u.byID[l.ID] = next
}

// sorted returns the existing volumes of the given apps, oldest first.
func (u *volumeUnion) sorted(apps []bourse.App) []inventory.ListedVolume {
	of := make(map[bourse.AppName]*bourse.App, len(apps))
	for i := range apps {
		of[apps[i].Name] = &apps[i]
	}
	out := make([]inventory.ListedVolume, 0, len(u.byID))
	for _, l := range u.byID {
		if app := of[l.App]; app != nil && l.OwnedBy(app) && l.State != bourse.VolumeDestroyed {
			out = append(out, l)
		}
	}
	slices.SortFunc(out, func(x, y inventory.ListedVolume) int {
		return cmp.Or(x.CreatedAt.Compare(y.CreatedAt), cmp.Compare(x.ID, y.ID))
	})
	return out
}

// Copy returns a volume's data from the view and recent replies, without asking the volume's worker. It returns the
// volume only if mayUse returns true for the volume's owner.
func (k *Volumes) Copy(ctx context.Context, app bourse.AppName, id bourse.VolumeID, mayUse func(Owner) bool) (inventory.ListedVolume, bool) {
	t, remembered := k.fresh.get(id) // must happen before the view is read; see fresh.of
	rows, err := k.View.Volumes(ctx, inventory.VolumeFilter{App: app})
	if err != nil {
		k.viewFailed(ctx, err)
	}
	var found inventory.ListedVolume
	for i := range rows {
		if rows[i].ID == id && mayUse(OwnerOfVolume(&rows[i].Volume)) {
			found = rows[i]
		}
	}
	if remembered && mayUse(OwnerOfVolume(&t.thing)) && (found.ID == "" || found.UpdatedAt.Before(t.version)) {
		found.Volume, found.HeardAt = t.thing, t.at
	}
	return found, found.ID != ""
}
