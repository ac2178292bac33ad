package machinesapi

import (
	"context"
	"net/http"
	"strings"

	"github.com/bourse-dev/bourse"
)

// AppVolumes are the volumes of one app, as a client reaches them.
type AppVolumes struct {
	Client *Client
	App    bourse.AppName
}

// Volumes returns the client's way to an app's volumes.
func (c *Client) Volumes(app bourse.AppName) AppVolumes { return AppVolumes{c, app} }

func (v AppVolumes) path(id bourse.VolumeID, more ...string) string {
	return path(append([]string{"apps", string(v.App), "volumes", string(id)}, more...)...)
}

// Create places an order for a volume and waits until it is filled or
// refused. A non-empty order id makes a repetition find the first call's
// volume. A volume that is made from another one or from a snapshot is being
// filled when the reply comes. Codes: invalid, not_found (the app, or what it
// is to be made from), insufficient_capacity (the [ReplyError] has the
// refusals and the order id), timeout (repeat with the same order id).
func (v AppVolumes) Create(ctx context.Context, in CreateVolume, order bourse.OrderID) (Volume, error) {
	header := http.Header{}
	if order != "" {
		header.Set(HeaderOrderID, string(order))
	}
	var out Volume
	_, err := v.Client.do(ctx, call{method: http.MethodPost, path: path("apps", string(v.App), "volumes"), header: header, in: in, out: &out})
	return out, err
}

// List lists an app's volumes, oldest first, and the workers that did not
// answer: their volumes may be missing. Codes: not_found (the app).
func (v AppVolumes) List(ctx context.Context) ([]Volume, []bourse.WorkerID, error) {
	var out []Volume
	reply, err := v.Client.do(ctx, call{method: http.MethodGet, path: path("apps", string(v.App), "volumes"), out: &out})
	if err != nil {
		return nil, nil, err
	}
	return out, silentOf(reply), nil
}

// silentOf returns the workers that a listing could not ask.
func silentOf(reply http.Header) []bourse.WorkerID {
	var silent []bourse.WorkerID
	for id := range strings.SplitSeq(reply.Get(HeaderUnreachable), ",") {
		if id != "" {
			silent = append(silent, bourse.WorkerID(strings.TrimSpace(id)))
		}
	}
	return silent
}

// Get finds a volume, with how full it is. Codes: not_found.
func (v AppVolumes) Get(ctx context.Context, id bourse.VolumeID) (Volume, error) {
	var out Volume
	_, err := v.Client.do(ctx, call{method: http.MethodGet, path: v.path(id), out: &out})
	return out, err
}

// Update changes how a volume is kept. Codes: invalid, not_found.
func (v AppVolumes) Update(ctx context.Context, id bourse.VolumeID, in UpdateVolume) (Volume, error) {
	var out Volume
	_, err := v.Client.do(ctx, call{method: http.MethodPut, path: v.path(id), in: in, out: &out})
	return out, err
}

// Extend makes a volume larger, also while a machine uses it, and waits
// until it is. Codes: invalid (it would shrink), not_found,
// failed_precondition, insufficient_capacity (its worker is full).
func (v AppVolumes) Extend(ctx context.Context, id bourse.VolumeID, sizeGB int64) (Volume, error) {
	var out Extended
	_, err := v.Client.do(ctx, call{method: http.MethodPut, path: v.path(id, "extend"), in: ExtendVolume{SizeGB: sizeGB}, out: &out})
	return out.Volume, err
}

// Destroy removes a volume for good; its snapshots stay until their
// retention is over. Codes: not_found, failed_precondition (a machine has it).
func (v AppVolumes) Destroy(ctx context.Context, id bourse.VolumeID) (Volume, error) {
	var out Volume
	_, err := v.Client.do(ctx, call{method: http.MethodDelete, path: v.path(id), out: &out})
	return out, err
}

// Snapshots lists a volume's snapshots, also of one that is gone, newest first.
// Codes: not_found.
func (v AppVolumes) Snapshots(ctx context.Context, id bourse.VolumeID) ([]Snapshot, error) {
	var out []Snapshot
	_, err := v.Client.do(ctx, call{method: http.MethodGet, path: v.path(id, "snapshots"), out: &out})
	return out, err
}

// Snapshot takes a snapshot of a volume and waits until it is taken.
// Codes: not_found, failed_precondition (one is being taken),
// insufficient_capacity.
func (v AppVolumes) Snapshot(ctx context.Context, id bourse.VolumeID) (Snapshot, error) {
	var out Snapshot
	_, err := v.Client.do(ctx, call{method: http.MethodPost, path: v.path(id, "snapshots"), out: &out})
	return out, err
}
