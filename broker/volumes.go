package broker

import (
	"context"
	"net/http"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/machinesapi"
)

// VolumeKeeper is what a broker asks of workers about their volumes.
type VolumeKeeper interface {
	// Volumes lists the worker's volumes that the query selects.
	Volumes(ctx context.Context, to bourse.Member, query fabric.VolumesQuery) ([]bourse.Volume, error)
	// Volume gives a volume with its usage.
	Volume(ctx context.Context, to bourse.Member, id bourse.VolumeID) (bourse.Volume, error)
	// VolumeChange changes how a volume is kept.
	VolumeChange(ctx context.Context, to bourse.Member, id bourse.VolumeID, change fabric.VolumeChange) (bourse.Volume, error)
	// VolumeExtend answers once the volume has grown.
	VolumeExtend(ctx context.Context, to bourse.Member, id bourse.VolumeID, sizeGB int64) (bourse.Volume, error)
	// VolumeDestroy answers once the volume is gone.
	VolumeDestroy(ctx context.Context, to bourse.Member, id bourse.VolumeID) (bourse.Volume, error)
	// Snapshot answers once the snapshot is taken.
	Snapshot(ctx context.Context, to bourse.Member, id bourse.VolumeID) (bourse.Snapshot, error)
}

// errNoVolume is what every id that leads nowhere gets.
func errNoVolume() error { return bourse.Errorf(bourse.CodeNotFound, "volume not found") }

// volumeError is workerError for volumes: a missing one has its own text, and a
// full worker is not helped by another region.
func volumeError(ctx context.Context, worker bourse.WorkerID, changes bool, err error) error {
	switch err = workerError(ctx, worker, changes, err); bourse.CodeOf(err) {
	case bourse.CodeNotFound:
		return &bourse.Error{Code: bourse.CodeNotFound, Message: "volume not found", Err: err}
	case bourse.CodeInsufficient:
		return noVolumeRoom(err)
	default:
		return err
	}
}

// noVolumeRoom gives a lack of capacity as clients know it from volumes.
func noVolumeRoom(err error) *reply {
	return &reply{
		err: err, status: http.StatusPreconditionFailed, word: machinesapi.StatusVolumePlacement,
		text: machinesapi.NoVolumeText + bourse.MessageOf(err),
	}
}

// listVolumes tells what the view has of an app's volumes; gatherVolumes says
// when workers are asked, too.
func (b *Broker) listVolumes(w http.ResponseWriter, r *request) error {
	summary, err := queryBool(r, "summary")
	if err != nil {
		return err
	}
	app, err := b.apps.recall(r.Context(), r.app())
	if err != nil {
		return err
	}
	found := b.gatherVolumes(r.Context(), []bourse.App{app})
	if len(found.volumes) == 0 && found.asked > 0 && len(found.missing) == found.asked && !b.View.Synced() {
		return bourse.Errorf(bourse.CodeUnavailable, "none of %d workers answers", found.asked)
	}
	out := []machinesapi.Volume{}
	for i := range found.volumes {
		b.volumes.owners.remember(found.volumes[i].ID, ownerOfVolume(&found.volumes[i].Volume))
		out = append(out, showVolume(&found.volumes[i], summary))
	}
	showSilent(w.Header(), found.missing)
	return writeJSON(w, http.StatusOK, out)
}

// showVolume shows a volume with what its worker's word is worth.
func showVolume(l *ListedVolume, summary bool) machinesapi.Volume {
	show := machinesapi.FromVolume
	if summary {
		show = machinesapi.SummaryOfVolume
	}
	out := show(&l.Volume)
	out.HostStatus = l.HostStatus
	if l.HostStatus != machinesapi.HostOK && !l.HeardAt.IsZero() {
		out.HostHeard = l.HeardAt.UTC().Format(time.RFC3339)
	}
	return out
}

// orgVolumes lists the volumes of all apps of an organization that the caller
// may use.
func (b *Broker) orgVolumes(w http.ResponseWriter, r *request) error {
	counts, _ := b.countMachines(r.Context(), nil)
	apps, missing, err := b.apps.list(r.Context(), counts)
	if err != nil {
		return err
	}
	org, allowed := r.PathValue("org"), false
	var mine []bourse.App
	for _, app := range apps {
		if app.Org == org && r.who.may(app) {
			mine, allowed = append(mine, app), true
		}
	}
	if !allowed && !r.who.may(bourse.App{Org: org}) {
		return errForbidden()
	}
	out := machinesapi.OrgVolumes{Volumes: []machinesapi.Volume{}}
	found := b.gatherVolumes(r.Context(), mine)
	for i := range found.volumes {
		out.Volumes = append(out.Volumes, showVolume(&found.volumes[i], true))
	}
	showSilent(w.Header(), append(missing, found.missing...))
	return writeJSON(w, http.StatusOK, out)
}

// volumeTarget is a volume and the worker that owns it.
type volumeTarget struct {
	worker bourse.Member
	id     bourse.VolumeID
}

// volumeOwner finds the worker of the path's volume by the volume's id alone.
// Codes: not_found, unavailable (the worker is lost).
func (b *Broker) volumeOwner(r *request) (volumeTarget, error) {
	id := bourse.VolumeID(r.PathValue("volume"))
	if id.Tag() == 0 {
		return volumeTarget{}, errNoVolume()
	}
	if worker, ok := b.Directory.ByTag(id.Tag()); ok {
		return volumeTarget{worker, id}, nil
	}
	l, ok := b.volumeCopy(r)
	if absent, known := b.absentTag(id.Tag()); !ok && known {
		return volumeTarget{}, errAbsent(absent)
	}
	if !ok {
		return volumeTarget{}, errNoVolume()
	}
	return volumeTarget{}, bourse.Errorf(bourse.CodeUnavailable, "its worker %s cannot be reached", l.Worker)
}

// volumeCopy gives what is known here of the path's volume without asking its
// owner.
func (b *Broker) volumeCopy(r *request) (ListedVolume, bool) {
	id := bourse.VolumeID(r.PathValue("volume"))
	t, remembered := b.volumes.fresh.get(id) // before the view: see there
	rows, err := b.View.Volumes(r.Context(), r.app())
	if err != nil {
		b.viewFailed(r.Context(), err)
	}
	var found ListedVolume
	for i := range rows {
		if rows[i].ID == id && r.reaches(ownerOfVolume(&rows[i].Volume)) {
			found = rows[i]
		}
	}
	if remembered && r.reaches(ownerOfVolume(&t.thing)) && (found.ID == "" || found.UpdatedAt.Before(t.version)) {
		found.Volume, found.HeardAt = t.thing, t.at
	}
	return found, found.ID != ""
}

// volumeOf reads the path's volume from its owner. One of another app is not
// found. Codes: not_found, unavailable.
func (b *Broker) volumeOf(r *request) (volumeTarget, bourse.Volume, error) {
	to, err := b.volumeOwner(r)
	if err != nil {
		return to, bourse.Volume{}, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), min(b.Patience, readPatience))
	defer cancel()
	v, err := b.Workers.Volume(ctx, to.worker, to.id)
	if err != nil {
		return to, v, volumeError(r.Context(), to.worker.ID, reading, err)
	}
	b.volumes.owners.remember(v.ID, ownerOfVolume(&v))
	if !r.reaches(ownerOfVolume(&v)) {
		return to, v, errNoVolume()
	}
	b.volumes.note(&v)
	return to, v, nil
}

// getVolume shows one volume, with how full it is; one that is gone, too, while
// its worker remembers it. Of a worker that cannot be reached the view tells
// what it last heard.
func (b *Broker) getVolume(w http.ResponseWriter, r *request) error {
	_, v, err := b.volumeOf(r)
	if err == nil {
		return writeJSON(w, http.StatusOK, machinesapi.FromVolume(&v))
	}
	if bourse.CodeOf(err) != bourse.CodeUnavailable {
		return err
	}
	l, ok := b.volumeCopy(r)
	if !ok {
		return err
	}
	l.HostStatus = machinesapi.HostUnreachable
	return writeJSON(w, http.StatusOK, showVolume(&l, false))
}

// listSnapshots lists a volume's snapshots, newest first.
func (b *Broker) listSnapshots(w http.ResponseWriter, r *request) error {
	_, v, err := b.volumeOf(r)
	if err != nil {
		return err
	}
	out := []machinesapi.Snapshot{}
	for i := len(v.Snapshots) - 1; i >= 0; i-- {
		out = append(out, machinesapi.FromSnapshot(&v.Snapshots[i]))
	}
	return writeJSON(w, http.StatusOK, out)
}
