package fabric

import (
	"context"
	"io"
	"net/url"
	"strconv"

	"github.com/bourse-dev/bourse"
)

var (
	routeVolumes       = routeOf(PathVolumes)
	routeVolume        = routeOf(PathVolume)
	routeVolumeChange  = routeOf(PathVolumeChange)
	routeVolumeExtend  = routeOf(PathVolumeExtend)
	routeVolumeDestroy = routeOf(PathVolumeDestroy)
	routeSnapshot      = routeOf(PathSnapshot)
	routeExport        = routeOf(PathExport)
	routeChunk         = routeOf(PathChunk)
	routeExportEnd     = routeOf(PathExportEnd)
)

// Volumes lists the worker's volumes that q selects.
func (c *Client) Volumes(ctx context.Context, to bourse.Member, q VolumesQuery) ([]bourse.Volume, error) {
	return exchange[[]bourse.Volume](ctx, c, to, ask{route: routeVolumes, query: q.values()})
}

// Volume returns a volume with its usage.
func (c *Client) Volume(ctx context.Context, to bourse.Member, id bourse.VolumeID) (bourse.Volume, error) {
	return exchange[bourse.Volume](ctx, c, to, ask{route: routeVolume, id: string(id)})
}

// VolumeChange changes how a volume is kept.
func (c *Client) VolumeChange(ctx context.Context, to bourse.Member, id bourse.VolumeID, change VolumeChange) (bourse.Volume, error) {
	return exchange[bourse.Volume](ctx, c, to, ask{route: routeVolumeChange, id: string(id), body: change})
}

// VolumeExtend makes a volume larger and answers once it is.
func (c *Client) VolumeExtend(ctx context.Context, to bourse.Member, id bourse.VolumeID, sizeGB int64) (bourse.Volume, error) {
	return exchange[bourse.Volume](ctx, c, to, ask{route: routeVolumeExtend, id: string(id), body: ExtendRequest{SizeGB: sizeGB}})
}

// VolumeDestroy removes a volume and answers once it is gone.
func (c *Client) VolumeDestroy(ctx context.Context, to bourse.Member, id bourse.VolumeID) (bourse.Volume, error) {
	return exchange[bourse.Volume](ctx, c, to, ask{route: routeVolumeDestroy, id: string(id), body: struct{}{}})
}

// Snapshot takes a snapshot of a volume and answers once it is taken.
func (c *Client) Snapshot(ctx context.Context, to bourse.Member, id bourse.VolumeID) (bourse.Snapshot, error) {
	return exchange[bourse.Snapshot](ctx, c, to, ask{route: routeSnapshot, id: string(id), body: struct{}{}})
}

// Export is the export of a volume or snapshot of another worker, which has
// granted it. It asks nothing yet.
func (c *Client) Export(to bourse.Member, id, grant string) *Export {
	return &Export{client: c, to: to, id: id, grant: grant}
}

// Export is a volume or a snapshot as a worker offers it to another one.
type Export struct {
	client *Client
	to     bourse.Member
	id     string
	grant  string
}

// Manifest reads into v what the volume or snapshot consists of. Of a volume
// the worker takes a snapshot for it first, the same one for each caller as
// long as it is being read.
func (e *Export) Manifest(ctx context.Context, v any) error {
	resp, err := e.client.open(ctx, e.to, ask{route: routeExport, id: e.id, query: url.Values{"grant": {e.grant}}})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return readReply(ctx, e.to, resp, v, maxReply)
}

// Chunk returns one chunk of the manifest, by its number and digest, as a stream
// that must be closed. The caller verifies what arrives.
func (e *Export) Chunk(ctx context.Context, n int, digest string) (io.ReadCloser, error) {
	query := url.Values{"n": {strconv.Itoa(n)}, "digest": {digest}, "grant": {e.grant}}
	resp, err := e.client.open(ctx, e.to, ask{route: routeChunk, id: e.id, query: query}) //nolint:bodyclose // the caller does
	if err != nil {
		return nil, err
	}
	return &received{ReadCloser: resp.Body, lost: func(err error) error { return Lost(ctx, e.to, err) }}, nil
}

// ExportEnd notifies a worker that a manifest is no longer read, by the
// manifest's id. Repeated calls do no harm.
func (c *Client) ExportEnd(ctx context.Context, to bourse.Member, id, grant string) error {
	_, err := exchange[struct{}](ctx, c, to, ask{route: routeExportEnd, id: id, query: url.Values{"grant": {grant}}})
	return err
}
