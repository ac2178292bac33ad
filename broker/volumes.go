package broker

import (
	"context"
	"net/http"
	"time"

	"github.com/bourse-dev/bourse"

	"github.com/bourse-dev/bourse/broker/endpoint"
	"github.com/bourse-dev/bourse/broker/lookup"

	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/view/inventory"
)

// volumeHandler serves the volume endpoints.
type volumeHandler struct {
	*Config
	gate     *endpoint.Gate
	apps     *lookup.Apps
	quota    *lookup.Checker
	volumes  *lookup.Volumes
	machines *lookup.Machines
}

func (h *volumeHandler) routes() []endpoint.Route {
	return []endpoint.Route{
		endpoint.On("GET "+endpoint.AllVolumes, endpoint.App, h.listVolumes).Writes([]machinesapi.Volume{}).Asks("summary"),
		endpoint.On("POST "+endpoint.AllVolumes, endpoint.App, h.gate.Ordering(endpoint.MachineLease, h.createVolume)).Reads(machinesapi.CreateVolume{}).Writes(machinesapi.Volume{}),
		endpoint.On("GET "+endpoint.OneVolume, endpoint.App, h.getVolume).Writes(machinesapi.Volume{}),
		endpoint.On("PUT "+endpoint.OneVolume, endpoint.App, h.updateVolume).Reads(machinesapi.UpdateVolume{}).Writes(machinesapi.Volume{}),
		endpoint.On("DELETE "+endpoint.OneVolume, endpoint.App, h.destroyVolume).Writes(machinesapi.Volume{}),
		endpoint.On("PUT "+endpoint.OneVolume+"/extend", endpoint.App, h.extendVolume).Reads(machinesapi.ExtendVolume{}).Writes(machinesapi.Extended{}),
		endpoint.On("GET "+endpoint.OneVolume+"/snapshots", endpoint.App, h.listSnapshots).Writes([]machinesapi.Snapshot{}),
		endpoint.On("POST "+endpoint.OneVolume+"/snapshots", endpoint.App, h.createSnapshot).ReadsNothing().Writes(machinesapi.Snapshot{}),
		endpoint.On("GET /v1/orgs/{org}/volumes", endpoint.Token, h.orgVolumes).Writes(machinesapi.OrgVolumes{}),
	}
}

// errNoVolume returns the error for a volume that does not exist.
func errNoVolume() error { return bourse.Errorf(bourse.CodeNotFound, "volume not found") }

// volumeError is like endpoint.WorkerError, but for volumes. All errors about missing volumes have the same message. If
// the worker is full, the reply's status indicates that another region would not help.
func volumeError(ctx context.Context, worker bourse.WorkerID, changes bool, err error) error {
	switch err = endpoint.WorkerError(ctx, worker, changes, err); bourse.CodeOf(err) {
	case bourse.CodeNotFound:
		return &bourse.Error{Code: bourse.CodeNotFound, Message: "volume not found", Err: err}
	case bourse.CodeInsufficient:
		return noVolumeRoom(err)
	default:
		return err
	}
}

// noVolumeRoom returns the insufficient-capacity reply in the form that clients expect for volumes.
func noVolumeRoom(err error) *endpoint.Reply {
	return &endpoint.Reply{
		Err: err, Status: http.StatusPreconditionFailed, Word: machinesapi.StatusVolumePlacement,
		Text: machinesapi.NoVolumeText + bourse.MessageOf(err),
	}
}

// listVolumes lists an app's volumes from the view and, in the cases described at
// [lookup.Machines.Gather], from the workers.
func (h *volumeHandler) listVolumes(w http.ResponseWriter, r *endpoint.Request) error {
	summary, err := endpoint.QueryBool(r, "summary")
	if err != nil {
		return err
	}
	app, err := h.apps.FindCached(r.Context(), r.App())
	if err != nil {
		return err
	}
	found := h.volumes.Gather(r.Context(), []bourse.App{app})
	if len(found.Volumes) == 0 && found.Asked > 0 && len(found.Missing) == found.Asked && !h.View.InSync() {
		return bourse.Errorf(bourse.CodeUnavailable, "none of %d workers answered", found.Asked)
	}
	out := []machinesapi.Volume{}
	for i := range found.Volumes {
		h.volumes.Remember(&found.Volumes[i].Volume)
		out = append(out, showVolume(&found.Volumes[i], summary))
	}
	endpoint.ListUnreachable(w.Header(), found.Missing)
	return endpoint.WriteJSON(w, http.StatusOK, out)
}

// showVolume converts a listed volume to the API's type, with its host's status.
func showVolume(l *inventory.ListedVolume, summary bool) machinesapi.Volume {
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

// orgVolumes lists the volumes of the organization's apps, limited to apps that the caller may use.
func (h *volumeHandler) orgVolumes(w http.ResponseWriter, r *endpoint.Request) error {
	counts, _ := h.machines.Count(r.Context(), nil)
	list, missing, err := h.apps.List(r.Context(), counts)
	if err != nil {
		return err
	}
	org, allowed := r.PathValue("org"), false
	var mine []bourse.App
	for _, app := range list {
		if app.Org == org && r.Who.May(app) {
			mine, allowed = append(mine, app), true
		}
	}
	if !allowed && !r.Who.May(bourse.App{Org: org}) {
		return endpoint.ErrForbidden()
	}
	out := machinesapi.OrgVolumes{Volumes: []machinesapi.Volume{}}
	found := h.volumes.Gather(r.Context(), mine)
	for i := range found.Volumes {
		out.Volumes = append(out.Volumes, showVolume(&found.Volumes[i], true))
	}
	endpoint.ListUnreachable(w.Header(), append(missing, found.Missing...))
	return endpoint.WriteJSON(w, http.StatusOK, out)
}

// volumeTarget is a volume and the worker that owns it.
type volumeTarget struct {
	worker bourse.Member
	id     bourse.VolumeID
}

// volumeOwner determines the worker of the volume in the request's path from the volume's ID alone.
// Errors: not_found; unavailable if the worker is unreachable.
func (h *volumeHandler) volumeOwner(r *endpoint.Request) (volumeTarget, error) {
	id := bourse.VolumeID(r.PathValue("volume"))
	if id.Tag() == 0 {
		return volumeTarget{}, errNoVolume()
	}
	worker, absent := byTag(h.Directory, id.Tag())
	if worker != nil {
		return volumeTarget{*worker, id}, nil
	}
	l, ok := h.volumeCopy(r)
	if absent != nil && (!ok || absent.Removed) {
		return volumeTarget{}, errAbsent(absent)
	}
	if !ok {
		return volumeTarget{}, errNoVolume()
	}
	return volumeTarget{}, bourse.Errorf(bourse.CodeUnavailable, "its worker %s cannot be reached", l.Worker)
}

// volumeCopy returns the data about the volume in the request's path from the view and recent replies, without asking
// the volume's worker.
func (h *volumeHandler) volumeCopy(r *endpoint.Request) (inventory.ListedVolume, bool) {
	return h.volumes.Copy(r.Context(), r.App(), bourse.VolumeID(r.PathValue("volume")), r.MayUse)
}

// volumeOf fetches the volume in the request's path from its worker. A volume of another app is reported as not found.
// Errors: not_found, unavailable.
func (h *volumeHandler) volumeOf(r *endpoint.Request) (volumeTarget, bourse.Volume, error) {
	to, err := h.volumeOwner(r)
	if err != nil {
		return to, bourse.Volume{}, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), min(h.Timeout, readTimeout))
	defer cancel()
	v, err := fabric.VolumeShow.Call(ctx, h.Workers, to.worker, to.id)
	if err != nil {
		return to, v, volumeError(r.Context(), to.worker.ID, endpoint.Reading, err)
	}
	h.volumes.Remember(&v)
	if !r.MayUse(lookup.OwnerOfVolume(&v)) {
		return to, v, errNoVolume()
	}
	h.volumes.RememberReply(&v)
	return to, v, nil
}

// getVolume returns one volume, including its used space. A destroyed volume is returned as long as its worker keeps
// the record. If the worker is unreachable, getVolume returns the view's data.
func (h *volumeHandler) getVolume(w http.ResponseWriter, r *endpoint.Request) error {
	_, v, err := h.volumeOf(r)
	if err == nil {
		return endpoint.WriteJSON(w, http.StatusOK, machinesapi.FromVolume(&v))
	}
	if bourse.CodeOf(err) != bourse.CodeUnavailable {
		return err
	}
	l, ok := h.volumeCopy(r)
	if !ok {
		return err
	}
	l.HostStatus = machinesapi.HostUnreachable
	return endpoint.WriteJSON(w, http.StatusOK, showVolume(&l, false))
}

// listSnapshots lists a volume's snapshots, newest first.
func (h *volumeHandler) listSnapshots(w http.ResponseWriter, r *endpoint.Request) error {
	_, v, err := h.volumeOf(r)
	if err != nil {
		return err
	}
	out := []machinesapi.Snapshot{}
	for i := len(v.Snapshots) - 1; i >= 0; i-- {
		out = append(out, machinesapi.FromSnapshot(&v.Snapshots[i]))
	}
	return endpoint.WriteJSON(w, http.StatusOK, out)
}
