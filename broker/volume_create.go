package broker

import (
	"context"
	"net/http"
	"slices"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/machinesapi"
)

// createVolume places an order for a volume and answers with the volume that
// filled it, or with everybody's refusal.
func (b *Broker) createVolume(w http.ResponseWriter, r *request) error {
	order, err := b.readVolumeOrder(w, r)
	if err != nil {
		return err
	}
	w.Header().Set(machinesapi.HeaderOrderID, string(order.ID))
	if err := b.mayHaveVolume(r.Context(), order.App); err != nil {
		return err
	}
	fill, decision, err := b.Exchange.Place(r.Context(), order)
	w.Header().Set(machinesapi.HeaderServerTiming, serverTiming(decision.Times))
	if err != nil {
		return placeError(&order, &decision, err)
	}
	if fill.Volume == nil {
		return &reply{order: order.ID, err: bourse.Errorf(bourse.CodeInternal, "order %s was filled without a volume", order.ID)}
	}
	b.volumes.note(fill.Volume)
	b.placed(order.App, usage{volumes: 1})
	return writeJSON(w, http.StatusOK, machinesapi.FromVolume(fill.Volume))
}

// readVolumeOrder makes an order of a request. Codes: invalid, not_found (the
// app, or what the volume is to be made from), unavailable.
func (b *Broker) readVolumeOrder(w http.ResponseWriter, r *request) (bourse.Order, error) {
	var in machinesapi.CreateVolume
	if err := decode(w, r, false, &in); err != nil {
		return bourse.Order{}, err
	}
	chosen, err := chosenID(r)
	if err != nil {
		return bourse.Order{}, err
	}
	regions, err := b.oneRegion(in.Region)
	if err != nil {
		return bourse.Order{}, err
	}
	if err := in.Requirements.Validate(); err != nil {
		return bourse.Order{}, err
	}
	app, err := b.apps.recall(r.Context(), r.app())
	if err != nil {
		return bourse.Order{}, err
	}
	spec := in.Spec()
	// The content of other apps is nobody's business, wherever it is.
	source, err := b.sourceOf(r, &app, &spec)
	if err != nil {
		return bourse.Order{}, err
	}
	if spec.SizeGB == 0 {
		spec.SizeGB = source.size
	}
	spec.Encrypted = spec.Encrypted || source.encrypted && in.Encrypted == nil
	spec = spec.WithDefaults()
	order := bourse.Order{App: app, Regions: regions, Volume: &spec, Options: bourse.Options{Within: in.Deadline, First: in.FirstTry}}
	chosen.name(&order)
	order.Config.Requirements = in.Requirements
	return order, order.Validate()
}

// oneRegion reads the region of a volume, which is one and must be said: what
// is stored is not moved by chance.
func (b *Broker) oneRegion(expression string) ([]bourse.Choice, error) {
	if expression == "" {
		return nil, bourse.Errorf(bourse.CodeInvalid, "invalid region: it is required for a volume")
	}
	known := b.Directory.Regions()
	if len(known) == 0 {
		return nil, bourse.Errorf(bourse.CodeUnavailable, "no worker has been heard of")
	}
	regions, err := bourse.ParseRegions(expression, known)
	if err != nil {
		return nil, err
	}
	if len(regions) != 1 || len(regions[0]) != 1 {
		return nil, bourse.Errorf(bourse.CodeInvalid, "invalid region %s: a volume stands in one region", bourse.Quoted(expression))
	}
	return regions, nil
}

// source is what a volume is to be made from.
type source struct {
	size      int64 // gigabytes; 0: there is none
	encrypted bool
}

// sourceOf looks up what a volume is to be made from, where it is. Codes:
// invalid, not_found, unavailable.
func (b *Broker) sourceOf(r *request, of *bourse.App, spec *bourse.VolumeOrder) (source, error) {
	switch {
	case spec.Source != "" && spec.Snapshot != "":
		return source{}, nil // the order's own check refuses it
	case spec.Source != "":
		return b.sourceVolume(r, of, spec.Source)
	case spec.Snapshot != "":
		return b.sourceSnapshot(r, of, spec.Snapshot)
	}
	return source{}, nil
}

func (b *Broker) sourceVolume(r *request, of *bourse.App, id bourse.VolumeID) (source, error) {
	missing := bourse.Errorf(bourse.CodeNotFound, "source volume %s not found", bourse.Quoted(string(id)))
	owner, err := b.sourceWorker(id.Tag(), missing)
	if err != nil {
		return source{}, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), b.Patience)
	defer cancel()
	v, err := b.Workers.Volume(ctx, owner, id)
	if bourse.CodeOf(err) == bourse.CodeNotFound || err == nil && !v.OwnedBy(of) {
		return source{}, missing
	}
	if err != nil {
		return source{}, workerError(r.Context(), owner.ID, reading, err)
	}
	return source{v.Spec.SizeGB, v.Spec.Encrypted}, nil
}

func (b *Broker) sourceSnapshot(r *request, of *bourse.App, id bourse.SnapshotID) (source, error) {
	missing := bourse.Errorf(bourse.CodeNotFound, "snapshot %s not found", bourse.Quoted(string(id)))
	owner, err := b.sourceWorker(id.Tag(), missing)
	if err != nil {
		return source{}, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), b.Patience)
	defer cancel()
	volumes, err := b.Workers.Volumes(ctx, owner, fabric.VolumesQuery{App: of.Name, AppID: of.ID, Deleted: true})
	if err != nil {
		return source{}, workerError(r.Context(), owner.ID, reading, err)
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

// sourceWorker finds the worker of a tag.
func (b *Broker) sourceWorker(tag bourse.WorkerTag, missing error) (bourse.Member, error) {
	if tag == 0 {
		return bourse.Member{}, missing
	}
	owner, ok := b.Directory.ByTag(tag)
	if !ok {
		return owner, bourse.Errorf(bourse.CodeUnavailable, "the worker that has what the volume is to be made from cannot be reached")
	}
	return owner, nil
}
