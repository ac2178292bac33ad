package machinesapi

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi/release"
)

// CreateApp creates an app, or returns the app that was created with the same idempotency key. Errors: invalid,
// already_exists.
func (c *Client) CreateApp(ctx context.Context, in CreateApp) (App, error) {
	return ask[App](ctx, c, call{method: http.MethodPost, path: path("apps"), in: in})
}

// App returns an app. Errors: not_found.
func (c *Client) App(ctx context.Context, app bourse.AppName) (App, error) {
	return ask[App](ctx, c, call{method: http.MethodGet, path: path("apps", string(app))})
}

// Apps lists the apps of an organization, sorted by name. If org is empty, it lists all apps.
func (c *Client) Apps(ctx context.Context, org string) ([]App, error) {
	out, err := ask[AppList](ctx, c, call{method: http.MethodGet, path: path("apps"), query: query("org_slug", org)})
	return out.Apps, err
}

// DeleteApp deletes an app and its machines. If force is set, running machines are stopped first,
// and the app's volumes are deleted as well. Errors: not_found, failed_precondition (machines are
// running, or the app has volumes).
func (c *Client) DeleteApp(ctx context.Context, app bourse.AppName, force bool) error {
	// Send force even if it is false, because the API's default is to stop running machines.
	return c.run(ctx, call{method: http.MethodDelete, path: path("apps", string(app)), query: query("force", strconv.FormatBool(force))})
}

// AppReleases is a client for one app's releases.
type AppReleases struct {
	Client *Client
	App    bourse.AppName
}

// Releases returns a client for an app's releases.
func (c *Client) Releases(app bourse.AppName) AppReleases { return AppReleases{c, app} }

func (r AppReleases) path(more ...string) string {
	return path(append([]string{"apps", string(r.App), "releases"}, more...)...)
}

// List lists the app's releases, newest first. If limit is 0, it lists all releases that are still stored. Errors:
// not_found (the app).
func (r AppReleases) List(ctx context.Context, limit int) ([]release.Release, error) {
	out, err := ask[ReleaseList](ctx, r.Client, call{method: http.MethodGet, path: r.path(), query: query("limit", positive(limit))})
	return out.Releases, err
}

// Current returns the latest complete release. Errors: not_found (the app does not exist or has no complete release).
func (r AppReleases) Current(ctx context.Context) (release.Release, error) {
	return ask[release.Release](ctx, r.Client, call{method: http.MethodGet, path: r.path("current")})
}

// Create records a deployment of the app. Errors: invalid, not_found (the app).
func (r AppReleases) Create(ctx context.Context, in CreateRelease) (release.Release, error) {
	return ask[release.Release](ctx, r.Client, call{method: http.MethodPost, path: r.path(), in: in})
}

// Change records the progress of a deployment. Errors: invalid, not_found.
func (r AppReleases) Change(ctx context.Context, id release.ID, in ChangeRelease) (release.Release, error) {
	return ask[release.Release](ctx, r.Client, call{method: http.MethodPatch, path: r.path(string(id)), in: in})
}

// AppSecrets is a client for one app's secrets.
type AppSecrets struct {
	Client *Client
	App    bourse.AppName
}

// Secrets returns a client for an app's secrets.
func (c *Client) Secrets(app bourse.AppName) AppSecrets { return AppSecrets{c, app} }

func (s AppSecrets) path(name ...string) string {
	return path(append([]string{"apps", string(s.App), "secrets"}, name...)...)
}

// List returns the secrets, sorted by name, without their values. Errors: not_found (the app).
func (s AppSecrets) List(ctx context.Context) (SecretList, error) {
	return ask[SecretList](ctx, s.Client, call{method: http.MethodGet, path: s.path()})
}

// Get returns one secret without its value. Errors: not_found (the app or the secret).
func (s AppSecrets) Get(ctx context.Context, name string) (Secret, error) {
	return ask[Secret](ctx, s.Client, call{method: http.MethodGet, path: s.path(name)})
}

// Change sets several secrets at once. A nil value removes the secret. Change returns all of the app's secrets after
// the change. Errors: invalid, not_found (the app), forbidden (a quota), failed_precondition (the broker has no key for
// secrets).
func (s AppSecrets) Change(ctx context.Context, values map[string]*string) (SecretList, error) {
	return ask[SecretList](ctx, s.Client, call{method: http.MethodPost, path: s.path(), in: SetSecrets{values}})
}

// Set sets one secret. Errors: those of Change.
func (s AppSecrets) Set(ctx context.Context, name, value string) (ChangedSecret, error) {
	return ask[ChangedSecret](ctx, s.Client, call{method: http.MethodPost, path: s.path(name), in: SetSecret{&value}})
}

// Delete removes a secret if it exists. It returns the version of the app's secrets. Errors:
// not_found (the app).
func (s AppSecrets) Delete(ctx context.Context, name string) (uint64, error) {
	out, err := ask[SecretsVersion](ctx, s.Client, call{method: http.MethodDelete, path: s.path(name)})
	return out.Version, err
}

// Images lists the images on the workers that the target selects. It also returns the workers that
// did not answer. Errors: not_found (the worker).
func (c *Client) Images(ctx context.Context, of ImageTarget) ([]WorkerImage, []bourse.WorkerID, error) {
	out, silent, err := list[ImageList](ctx, c, call{method: http.MethodGet, path: path("images"), query: query("region", string(of.Region), "worker", string(of.Worker))})
	return out.Images, silent, err
}

// AppImages is a client for the images that one app may use.
type AppImages struct {
	Client *Client
	App    bourse.AppName
}

// AppImages returns a client for an app's images.
func (c *Client) AppImages(app bourse.AppName) AppImages { return AppImages{c, app} }

// Resolve returns the image to which a name currently refers. A worker queries the image's registry with the
// credentials of the app's organization. The names "host" and "pull" are returned unchanged. Errors: invalid, not_found
// (the app or the image), unavailable (no worker can reach the registry).
func (i AppImages) Resolve(ctx context.Context, image string) (bourse.ImageRef, error) {
	return ask[bourse.ImageRef](ctx, i.Client, call{method: http.MethodGet, path: path("apps", string(i.App), "images", "resolve"), query: url.Values{"image": {image}}})
}

// PruneImages removes unused images from the workers that the target selects. It returns the removed images and the
// workers that did not answer. Errors: not_found (the worker).
func (c *Client) PruneImages(ctx context.Context, of ImageTarget) ([]WorkerImage, []bourse.WorkerID, error) {
	out, silent, err := list[ImageList](ctx, c, call{method: http.MethodPost, path: path("images", "prune"), in: of})
	return out.Images, silent, err
}

// PullImage pulls an image on the selected workers before a machine needs it. It calls line, from the calling
// goroutine, with each worker's progress until all pulls have finished. If a worker's pull fails, that worker's last
// line contains the error. If line returns an error, PullImage returns that error, but the pulls continue. Errors:
// invalid, not_found (the worker), unavailable (the stream broke).
func (c *Client) PullImage(ctx context.Context, in PullImage, line func(PullLine) error) error {
	k := call{method: http.MethodPost, path: path("images", "pull"), in: in}
	resp, err := c.stream(ctx, k)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	k.reads = true // repeating a pull is harmless, so the call is safe to retry
	for l, err := range linesOf[PullLine](resp.Body) {
		if err != nil {
			return c.noReply(ctx, k, err)
		}
		if err := line(l); err != nil {
			return err
		}
	}
	return nil
}

// AppVolumes is a client for one app's volumes.
type AppVolumes struct {
	Client *Client
	App    bourse.AppName
}

// Volumes returns a client for an app's volumes.
func (c *Client) Volumes(app bourse.AppName) AppVolumes { return AppVolumes{c, app} }

func (v AppVolumes) path(id bourse.VolumeID, more ...string) string {
	return path(append([]string{"apps", string(v.App), "volumes", string(id)}, more...)...)
}

// Create places an order for a volume and waits until it is filled or refused. If order is not empty, calling Create
// again with the same order returns the same volume. A volume created from another volume or a snapshot may still be
// receiving its data when Create returns. Errors: invalid, not_found (the app or the source), insufficient_capacity
// (the [ReplyError] contains the refusals and the order ID), timeout (repeat the call with the same order ID).
func (v AppVolumes) Create(ctx context.Context, in CreateVolume, order bourse.OrderID) (Volume, error) {
	return ask[Volume](ctx, v.Client, call{method: http.MethodPost, path: path("apps", string(v.App), "volumes"), header: header(HeaderOrderID, string(order)), in: in})
}

// List lists an app's volumes, oldest first. It also returns the workers that did not answer, whose
// volumes may be missing. Errors: not_found (the app).
func (v AppVolumes) List(ctx context.Context) ([]Volume, []bourse.WorkerID, error) {
	return list[[]Volume](ctx, v.Client, call{method: http.MethodGet, path: path("apps", string(v.App), "volumes")})
}

// Get returns a volume with its used space. Errors: not_found.
func (v AppVolumes) Get(ctx context.Context, id bourse.VolumeID) (Volume, error) {
	return ask[Volume](ctx, v.Client, call{method: http.MethodGet, path: v.path(id)})
}

// Update changes a volume's snapshot settings. Errors: invalid, not_found.
func (v AppVolumes) Update(ctx context.Context, id bourse.VolumeID, in UpdateVolume) (Volume, error) {
	return ask[Volume](ctx, v.Client, call{method: http.MethodPut, path: v.path(id), in: in})
}

// Extend enlarges a volume, even one in use, and waits until the volume has its new size. Errors: invalid (the volume
// would shrink), not_found, failed_precondition, insufficient_capacity (the volume's worker is full).
func (v AppVolumes) Extend(ctx context.Context, id bourse.VolumeID, sizeGB int64) (Volume, error) {
	out, err := ask[Extended](ctx, v.Client, call{method: http.MethodPut, path: v.path(id, "extend"), in: ExtendVolume{SizeGB: sizeGB}})
	return out.Volume, err
}

// Destroy deletes a volume. Its snapshots remain until their retention ends. Errors: not_found,
// failed_precondition (the volume is attached to a machine).
func (v AppVolumes) Destroy(ctx context.Context, id bourse.VolumeID) (Volume, error) {
	return ask[Volume](ctx, v.Client, call{method: http.MethodDelete, path: v.path(id)})
}

// Snapshots lists the snapshots of a volume, newest first, even if the volume has been destroyed.
// Errors: not_found.
func (v AppVolumes) Snapshots(ctx context.Context, id bourse.VolumeID) ([]Snapshot, error) {
	return ask[[]Snapshot](ctx, v.Client, call{method: http.MethodGet, path: v.path(id, "snapshots")})
}

// Snapshot takes a snapshot of a volume and waits until it is complete. Errors: not_found,
// failed_precondition (another snapshot of the volume is in progress), insufficient_capacity.
func (v AppVolumes) Snapshot(ctx context.Context, id bourse.VolumeID) (Snapshot, error) {
	return ask[Snapshot](ctx, v.Client, call{method: http.MethodPost, path: v.path(id, "snapshots")})
}

// Org is a client for one organization.
type Org struct {
	Client *Client
	Slug   string
}

// Org returns a client for an organization.
func (c *Client) Org(slug string) Org { return Org{c, slug} }

// ListOrgMachines specifies which of an organization's machines to list, and which page of the list.
type ListOrgMachines struct {
	Deleted bool // include destroyed machines that their workers still have records of
	Region  bourse.Region
	States  []bourse.State
	Cursor  string // NextCursor of the previous page; "" for the first page
	Limit   int    // maximum number of machines, up to 1000; 0: 1000
}

func (l *ListOrgMachines) query() url.Values {
	q := ListMachines{Deleted: l.Deleted, Region: l.Region, States: l.States}.query()
	if l.Cursor != "" {
		q.Set("cursor", l.Cursor)
	}
	q.Set("limit", strconv.Itoa(l.Limit)) // the API also treats 0 as the default, so it is omitted
	return q
}

// Machines returns a page of the organization's machines. The most recently changed machines come last, so a machine
// that changes while a client reads the pages appears again and no machine is missed. Machines also returns the workers
// that did not answer, whose machines may be missing. Errors: invalid, forbidden.
func (o Org) Machines(ctx context.Context, want ListOrgMachines) (OrgMachines, []bourse.WorkerID, error) {
	return list[OrgMachines](ctx, o.Client, call{method: http.MethodGet, path: path("orgs", o.Slug, "machines"), query: want.query()})
}

// Volumes lists the volumes of all apps of the organization. It also returns the workers that did
// not answer, whose volumes may be missing. Errors: forbidden.
func (o Org) Volumes(ctx context.Context) ([]Volume, []bourse.WorkerID, error) {
	out, silent, err := list[OrgVolumes](ctx, o.Client, call{method: http.MethodGet, path: path("orgs", o.Slug, "volumes")})
	return out.Volumes, silent, err
}

// Placements returns the regions that have capacity for machines of a given size, in order of preference. It does not
// reserve capacity. Errors: invalid, forbidden.
func (o Org) Placements(ctx context.Context, in PlacementRequest) ([]RegionPlacement, error) {
	in.Org = o.Slug
	out, err := ask[PlacementList](ctx, o.Client, call{method: http.MethodPost, path: path("platform", "placements"), in: in, reads: true})
	return out.Regions, err
}
