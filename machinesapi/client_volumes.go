package machinesapi

import (
	"context"
	"net/http"
	"strings"

	"github.com/bourse-dev/bourse"
)

func volumePath(app bourse.AppName, id bourse.VolumeID, more ...string) string {
	return path(append([]string{"apps", string(app), "volumes", string(id)}, more...)...)
}

// CreateVolume places an order for a volume and waits until it is filled or
// refused. A non-empty order id makes a repetition find the first call's
// volume. A volume that is made from another one or from a snapshot is being
// filled when the reply comes. Codes: invalid, not_found (the app, or what it
// is to be made from), insufficient_capacity (the [ReplyError] has the
// refusals and the order id), timeout (repeat with the same order id).
func (c *Client) CreateVolume(ctx context.Context, app bourse.AppName, in CreateVolume, order bourse.OrderID) (Volume, error) {
	header := http.Header{}
	if order != "" {
		header.Set(HeaderOrderID, string(order))
	}
	var out Volume
	_, err := c.do(ctx, call{method: http.MethodPost, path: path("apps", string(app), "volumes"), header: header, in: in, out: &out})
	return out, err
}

// Volumes lists an app's volumes, oldest first, and the workers that did not
// answer: their volumes may be missing. Codes: not_found (the app).
func (c *Client) Volumes(ctx context.Context, app bourse.AppName) ([]Volume, []bourse.WorkerID, error) {
	var out []Volume
	reply, err := c.do(ctx, call{method: http.MethodGet, path: path("apps", string(app), "volumes"), out: &out})
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

// Volume finds a volume, with how full it is. Codes: not_found.
func (c *Client) Volume(ctx context.Context, app bourse.AppName, id bourse.VolumeID) (Volume, error) {
	var out Volume
	_, err := c.do(ctx, call{method: http.MethodGet, path: volumePath(app, id), out: &out})
	return out, err
}

// UpdateVolume changes how a volume is kept. Codes: invalid, not_found.
func (c *Client) UpdateVolume(ctx context.Context, app bourse.AppName, id bourse.VolumeID, in UpdateVolume) (Volume, error) {
	var out Volume
	_, err := c.do(ctx, call{method: http.MethodPut, path: volumePath(app, id), in: in, out: &out})
	return out, err
}

// ExtendVolume makes a volume larger, also while a machine uses it, and waits
// until it is. Codes: invalid (it would shrink), not_found,
// failed_precondition, insufficient_capacity (its worker is full).
func (c *Client) ExtendVolume(ctx context.Context, app bourse.AppName, id bourse.VolumeID, sizeGB int64) (Volume, error) {
	var out Extended
	_, err := c.do(ctx, call{method: http.MethodPut, path: volumePath(app, id, "extend"), in: ExtendVolume{SizeGB: sizeGB}, out: &out})
	return out.Volume, err
}

// DestroyVolume removes a volume for good; its snapshots stay until their
// retention is over. Codes: not_found, failed_precondition (a machine has it).
func (c *Client) DestroyVolume(ctx context.Context, app bourse.AppName, id bourse.VolumeID) (Volume, error) {
	var out Volume
	_, err := c.do(ctx, call{method: http.MethodDelete, path: volumePath(app, id), out: &out})
	return out, err
}

// Snapshots lists a volume's snapshots, also of one that is gone, newest first.
// Codes: not_found.
func (c *Client) Snapshots(ctx context.Context, app bourse.AppName, id bourse.VolumeID) ([]Snapshot, error) {
	var out []Snapshot
	_, err := c.do(ctx, call{method: http.MethodGet, path: volumePath(app, id, "snapshots"), out: &out})
	return out, err
}

// CreateSnapshot takes a snapshot of a volume and waits until it is taken.
// Codes: not_found, failed_precondition (one is being taken),
// insufficient_capacity.
func (c *Client) CreateSnapshot(ctx context.Context, app bourse.AppName, id bourse.VolumeID) (Snapshot, error) {
	var out Snapshot
	_, err := c.do(ctx, call{method: http.MethodPost, path: volumePath(app, id, "snapshots"), out: &out})
	return out, err
}

// OrgVolumes lists the volumes of all apps of an organization. Codes:
// forbidden.
func (c *Client) OrgVolumes(ctx context.Context, org string) ([]Volume, error) {
	var out OrgVolumes
	_, err := c.do(ctx, call{method: http.MethodGet, path: path("orgs", org, "volumes"), out: &out})
	return out.Volumes, err
}
