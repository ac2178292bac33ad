package broker

import (
	"context"
	"log/slog"
	"net/http"
	"slices"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/broker/endpoint"

	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/machinesapi"
)

// createVolume places an order for a volume. It replies with the new volume, or with all refusals.
func (h *volumeHandler) createVolume(w http.ResponseWriter, r *endpoint.Request) error {
	order, err := h.readVolumeOrder(w, r)
	if err != nil {
		return err
	}
	w.Header().Set(machinesapi.HeaderOrderID, string(order.ID))
	if err := h.quota.MayHaveVolume(r.Context(), order.App); err != nil {
		return err
	}
	fill, decision, err := h.Exchange.Place(r.Context(), order)
	w.Header().Set(machinesapi.HeaderServerTiming, endpoint.ServerTiming(decision.Times))
	if err != nil {
		return placeError(&order, &decision, err)
	}
	if fill.Volume == nil {
		return &endpoint.Reply{Order: order.ID, Err: bourse.Errorf(bourse.CodeInternal, "order %s was filled without a volume", order.ID)}
	}
	r.Note(slog.String("volume", string(fill.Volume.ID)))
	h.volumes.RememberReply(fill.Volume)
	h.quota.PlacedVolume(order.App)
	return endpoint.WriteJSON(w, http.StatusOK, machinesapi.FromVolume(fill.Volume))
}

// readVolumeOrder converts a request to an order. Errors: invalid, not_found (the app or the source), unavailable.
func (h *volumeHandler) readVolumeOrder(w http.ResponseWriter, r *endpoint.Request) (bourse.Order, error) {
	var in machinesapi.CreateVolume
	if err := endpoint.Decode(w, r, false, &in); err != nil {
		return bourse.Order{}, err
	}
	if err := in.Review(); err != nil {
		return bourse.Order{}, err
	}
	chosen, err := chosenID(r)
	if err != nil {
		return bourse.Order{}, err
	}
	regions, err := h.oneRegion(in.Region)
	if err != nil {
		return bourse.Order{}, err
	}
	if err := in.Requirements.Validate(); err != nil {
		return bourse.Order{}, err
	}
	app, err := h.apps.FindCached(r.Context(), r.App())
	if err != nil {
		return bourse.Order{}, err
	}
	spec := in.Spec()
	// A source that belongs to another app is reported as not found.
	source, err := h.sourceOf(r, &app, &spec)
	if err != nil {
		return bourse.Order{}, err
	}
	if spec.SizeGB == 0 {
		spec.SizeGB = source.size
	}
	spec.Encrypted = spec.Encrypted || source.encrypted && in.Encrypted == nil
	spec = spec.WithDefaults()
	order := bourse.Order{App: app, Regions: regions, Volume: &spec, Options: bourse.Options{Timeout: in.Deadline, FirstTry: in.FirstTry}}
	chosen.name(&order)
	order.Config.Requirements = in.Requirements
	if in.ComputeImage != "" {
		if order.Config.Image = machinesapi.ImageName(in.ComputeImage); !isImageName(order.Config.Image) {
			return bourse.Order{}, errImageName(order.Config.Image)
		}
	}
	return order, order.Validate()
}

// oneRegion decodes the region of a new volume. It accepts only a single region, because a volume's data cannot move.
func (h *volumeHandler) oneRegion(expression string) ([]bourse.Choice, error) {
	if expression == "" {
		return nil, bourse.Errorf(bourse.CodeInvalid, "region is required for a volume")
	}
	regions, err := choices(h.Directory, expression)
	if err != nil {
		return nil, err
	}
	if len(regions) != 1 || len(regions[0]) != 1 {
		return nil, bourse.Errorf(bourse.CodeInvalid, "invalid region %s: use a single region for a volume", bourse.Quoted(expression))
	}
	return regions, nil
}

// source describes the volume or snapshot that a new volume is created from.
type source struct {
	size      int64 // in GB; 0: the new volume has no source
	encrypted bool
}

// sourceOf fetches the source of a new volume from the source's worker. Errors: invalid,
// not_found, unavailable.
func (h *volumeHandler) sourceOf(r *endpoint.Request, of *bourse.App, spec *bourse.VolumeOrder) (source, error) {
	switch {
	case spec.Source != "" && spec.Snapshot != "":
		return source{}, nil // the order's validation rejects a volume with two sources
	case spec.Source != "":
		return h.sourceVolume(r, of, spec.Source)
	case spec.Snapshot != "":
		return h.sourceSnapshot(r, of, spec.Snapshot)
	}
	return source{}, nil
}

func (h *volumeHandler) sourceVolume(r *endpoint.Request, of *bourse.App, id bourse.VolumeID) (source, error) {
	missing := bourse.Errorf(bourse.CodeNotFound, "source volume %s not found", bourse.Quoted(string(id)))
	owner, err := h.sourceWorker(id.Tag(), missing)
	if err != nil {
		return source{}, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), h.Timeout)
	defer cancel()
	v, err := fabric.VolumeShow.Call(ctx, h.Workers, owner, id)
	if bourse.CodeOf(err) == bourse.CodeNotFound || err == nil && !v.OwnedBy(of) {
		return source{}, missing
	}
	if err != nil {
		return source{}, endpoint.WorkerError(r.Context(), owner.ID, endpoint.Reading, err)
	}
	return source{v.Spec.SizeGB, v.Spec.Encrypted}, nil
}

func (h *volumeHandler) sourceSnapshot(r *endpoint.Request, of *bourse.App, id bourse.SnapshotID) (source, error) {
	missing := bourse.Errorf(bourse.CodeNotFound, "snapshot %s not found", bourse.Quoted(string(id)))
	owner, err := h.sourceWorker(id.Tag(), missing)
	if err != nil {
		return source{}, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), h.Timeout)
	defer cancel()
	volumes, err := fabric.VolumeList.Call(ctx, h.Workers, owner, fabric.VolumesQuery{App: of.Name, AppID: of.ID, Deleted: true})
	if err != nil {
		return source{}, endpoint.WorkerError(r.Context(), owner.ID, endpoint.Reading, err)
	}
	for _, v := range volumes {
		if !v.OwnedBy(of) {
			continue
		}
		if i := slices.IndexFunc(v.Snapshots, func(s bourse.Snapshot) bool { return s.ID == id }); i >= 0 {
			return source{v.Snapshots[i].SizeGB, v.Spec.Encrypted}, nil
		}
	}
	return source{}, missing
}

// sourceWorker returns the worker with the given tag. If the tag is 0, it returns the given error.
func (h *volumeHandler) sourceWorker(tag bourse.WorkerTag, missing error) (bourse.Member, error) {
	if tag == 0 {
		return bourse.Member{}, missing
	}
	owner, ok := h.Directory.ByTag(tag)
	if !ok {
		return owner, bourse.Errorf(bourse.CodeUnavailable, "the worker of the source volume or snapshot cannot be reached")
	}
	return owner, nil
}
