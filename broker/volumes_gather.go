package broker

import (
	"cmp"
	"context"
	"slices"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/machinesapi"
)

// knownVolumes is what a broker remembers of volumes.
type knownVolumes struct {
	owners *owners[bourse.VolumeID]
	fresh  *freshVolumes
}

// note takes in what a volume's worker told of it.
func (k *knownVolumes) note(v *bourse.Volume) {
	if v.ID == "" {
		return
	}
	k.owners.remember(v.ID, ownerOfVolume(v))
	k.fresh.note(v)
}

// gatheredVolumes is what could be found out of some volumes.
type gatheredVolumes struct {
	volumes []ListedVolume    // oldest first
	asked   int               // workers, beside the view
	missing []bourse.WorkerID // that did not answer
}

// gatherVolumes lists the volumes of some apps, as gather does machines.
func (b *Broker) gatherVolumes(ctx context.Context, apps []bourse.App) gatheredVolumes {
	var query fabric.VolumesQuery // any
	if len(apps) == 1 {
		query.App, query.AppID = apps[0].Name, apps[0].ID
	}
	app := query.App
	known := b.volumes.fresh.of(app) // before the view: see there
	rows, err := b.View.Volumes(ctx, app)
	if err != nil {
		b.viewFailed(ctx, err)
	}
	var members []bourse.Member
	if err != nil || !b.View.Synced() || (len(rows) == 0 && !b.apps.recorded(ctx, app)) {
		members = b.Directory.Workers()
	}
	answers := b.askVolumes(ctx, members, query)
	u := volumeUnion{byID: map[bourse.VolumeID]ListedVolume{}, heard: map[bourse.WorkerID]bool{}}
	for _, a := range answers {
		u.answer(&a)
	}
	for i := range rows {
		row := &rows[i]
		if owner, ok := b.Directory.ByTag(row.ID.Tag()); ok && owner.ID != row.Worker {
			continue // a member must not speak for another's volumes
		}
		u.add(row)
		b.volumes.fresh.saw(row.ID, row.UpdatedAt)
	}
	for _, v := range known {
		u.add(&ListedVolume{Volume: v, HostStatus: machinesapi.HostOK})
	}
	return gatheredVolumes{u.sorted(apps), len(members), silent(answers)}
}

func (b *Broker) askVolumes(ctx context.Context, members []bourse.Member, query fabric.VolumesQuery) []answer[[]bourse.Volume] {
	return ask(ctx, b.Patience, members, func(ctx context.Context, to bourse.Member) ([]bourse.Volume, error) {
		return b.Workers.Volumes(ctx, to, query)
	})
}

// volumeUnion puts together what there is of volumes: of a worker that
// answered, its answer is all there is; of the others, the latest version of
// what the view has and what they told lately.
type volumeUnion struct {
	byID  map[bourse.VolumeID]ListedVolume
	heard map[bourse.WorkerID]bool // asked; false: in vain
}

func (u *volumeUnion) answer(a *answer[[]bourse.Volume]) {
	u.heard[a.from.ID] = a.err == nil
	for _, v := range a.got {
		u.byID[v.ID] = ListedVolume{Volume: v, HostStatus: machinesapi.HostOK}
	}
}

func (u *volumeUnion) add(l *ListedVolume) {
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
		next.HostStatus, next.HeardAt = known.HostStatus, known.HeardAt // told to us, so no news of the host
	}
	u.byID[l.ID] = next
}

// sorted gives the living volumes of some apps.
func (u *volumeUnion) sorted(apps []bourse.App) []ListedVolume {
	of := make(map[bourse.AppName]*bourse.App, len(apps))
	for i := range apps {
		of[apps[i].Name] = &apps[i]
	}
	out := make([]ListedVolume, 0, len(u.byID))
	for _, l := range u.byID {
		if app := of[l.App]; app != nil && l.OwnedBy(app) && l.State != bourse.VolumeDestroyed {
			out = append(out, l)
		}
	}
	slices.SortFunc(out, func(x, y ListedVolume) int {
		return cmp.Or(x.CreatedAt.Compare(y.CreatedAt), cmp.Compare(x.ID, y.ID))
	})
	return out
}
