package machinesapi

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi/release"
)

// CreateApp makes an app. Codes: invalid, already_exists (unless the request's
// idempotency key is that of the one that is there).
func (c *Client) CreateApp(ctx context.Context, in CreateApp) (App, error) {
	return ask[App](ctx, c, call{method: http.MethodPost, path: path("apps"), in: in})
}

// App finds an app. Codes: not_found.
func (c *Client) App(ctx context.Context, app bourse.AppName) (App, error) {
	return ask[App](ctx, c, call{method: http.MethodGet, path: path("apps", string(app))})
}

// Apps lists the apps of an organization, of all when org is empty, by name.
func (c *Client) Apps(ctx context.Context, org string) ([]App, error) {
	out, err := ask[AppList](ctx, c, call{method: http.MethodGet, path: path("apps"), query: query("org_slug", org)})
	return out.Apps, err
}

// DeleteApp deletes an app with its machines; force stops those that run.
// Codes: not_found, failed_precondition (machines run).
func (c *Client) DeleteApp(ctx context.Context, app bourse.AppName, force bool) error {
	// Without force=false, machines that run are no reason to refuse.
	return c.run(ctx, call{method: http.MethodDelete, path: path("apps", string(app)), query: query("force", strconv.FormatBool(force))})
}

// AppReleases are the releases of one app, as a client reaches them.
type AppReleases struct {
	Client *Client
	App    bourse.AppName
}

// Releases returns a client for an app's releases.
func (c *Client) Releases(app bourse.AppName) AppReleases { return AppReleases{c, app} }

func (r AppReleases) path(more ...string) string {
	return path(append([]string{"apps", string(r.App), "releases"}, more...)...)
}

// List lists them, newest first: limit 0 means all that are kept. Codes: not_found
// (the app).
func (r AppReleases) List(ctx context.Context, limit int) ([]release.Release, error) {
	out, err := ask[ReleaseList](ctx, r.Client, call{method: http.MethodGet, path: r.path(), query: query("limit", positive(limit))})
	return out.Releases, err
}

// Current returns the newest that is complete. Codes: not_found (the app, or it has
// none).
func (r AppReleases) Current(ctx context.Context) (release.Release, error) {
	return ask[release.Release](ctx, r.Client, call{method: http.MethodGet, path: r.path("current")})
}

// Create records that the app is deployed. Codes: invalid, not_found (the app).
func (r AppReleases) Create(ctx context.Context, in CreateRelease) (release.Release, error) {
	return ask[release.Release](ctx, r.Client, call{method: http.MethodPost, path: r.path(), in: in})
}

// Change records how a deploy goes. Codes: invalid, not_found.
func (r AppReleases) Change(ctx context.Context, id release.ID, in ChangeRelease) (release.Release, error) {
	return ask[release.Release](ctx, r.Client, call{method: http.MethodPatch, path: r.path(string(id)), in: in})
}

// AppSecrets are the secrets of one app, as a client reaches them.
type AppSecrets struct {
	Client *Client
	App    bourse.AppName
}

// Secrets returns a client for an app's secrets.
func (c *Client) Secrets(app bourse.AppName) AppSecrets { return AppSecrets{c, app} }

func (s AppSecrets) path(name ...string) string {
	return path(append([]string{"apps", string(s.App), "secrets"}, name...)...)
}

// List returns the secrets, sorted by name, without their values. Codes: not_found (the app).
func (s AppSecrets) List(ctx context.Context) (SecretList, error) {
	return ask[SecretList](ctx, s.Client, call{method: http.MethodGet, path: s.path()})
}

// Get finds one. Codes: not_found (the app, or the secret).
func (s AppSecrets) Get(ctx context.Context, name string) (Secret, error) {
	return ask[Secret](ctx, s.Client, call{method: http.MethodGet, path: s.path(name)})
}

// Change sets several at once; a nil value removes one. The reply has all that
// the app has then. Codes: invalid, not_found (the app), forbidden (a quota),
// failed_precondition (the broker cannot seal).
func (s AppSecrets) Change(ctx context.Context, values map[string]*string) (SecretList, error) {
	return ask[SecretList](ctx, s.Client, call{method: http.MethodPost, path: s.path(), in: SetSecrets{values}})
}

// Set is Change of one.
func (s AppSecrets) Set(ctx context.Context, name, value string) (ChangedSecret, error) {
	return ask[ChangedSecret](ctx, s.Client, call{method: http.MethodPost, path: s.path(name), in: SetSecret{&value}})
}

// Delete removes one; one that is not there is no error. It returns the version
// of the app's secrets. Codes: not_found (the app).
func (s AppSecrets) Delete(ctx context.Context, name string) (uint64, error) {
	out, err := ask[SecretsVersion](ctx, s.Client, call{method: http.MethodDelete, path: s.path(name)})
	return out.Version, err
}

// Images lists the images of the workers that are meant, and the workers that
// did not answer. Codes: not_found (the worker).
func (c *Client) Images(ctx context.Context, of ImageTarget) ([]WorkerImage, []bourse.WorkerID, error) {
	out, silent, err := list[ImageList](ctx, c, call{method: http.MethodGet, path: path("images"), query: query("region", string(of.Region), "worker", string(of.Worker))})
	return out.Images, silent, err
}

// AppImages are the images that one app may use, as a client reaches them.
type AppImages struct {
	Client *Client
	App    bourse.AppName
}

// AppImages returns a client for an app's images.
func (c *Client) AppImages(app bourse.AppName) AppImages { return AppImages{c, app} }

// Resolve returns which image a name means now, as its registry says to the app's
// organization; "host" and "pull" mean themselves. Codes: invalid, not_found (the
// app, the image), unavailable (no worker reaches the registry).
func (i AppImages) Resolve(ctx context.Context, image string) (bourse.ImageRef, error) {
	return ask[bourse.ImageRef](ctx, i.Client, call{method: http.MethodGet, path: path("apps", string(i.App), "images", "resolve"), query: url.Values{"image": {image}}})
}

// PruneImages removes the images that no machine uses from the workers that
// are meant, and returns them and the workers that did not answer. Codes:
// not_found (the worker).
func (c *Client) PruneImages(ctx context.Context, of ImageTarget) ([]WorkerImage, []bourse.WorkerID, error) {
	out, silent, err := list[ImageList](ctx, c, call{method: http.MethodPost, path: path("images", "prune"), in: of})
	return out.Images, silent, err
}

// PullImage has the workers that are meant pull an image, before a machine
// needs it, and calls line from the calling goroutine for each news of them,
// until all have ended; a worker's own failure is in its last line. An error of
// line ends the asking, not the pulls, and is returned. Codes: invalid,
// not_found (the worker), and unavailable when the stream breaks off.
func (c *Client) PullImage(ctx context.Context, in PullImage, line func(PullLine) error) error {
	k := call{method: http.MethodPost, path: path("images", "pull"), in: in}
	resp, err := c.stream(ctx, k)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	k.reads = true // a pull may be asked for again
	for l, err := range linesOf[PullLine](resp.Body) {
		if err != nil {
			return c.lost(ctx, k, err)
		}
		if err := line(l); err != nil {
			return err
		}
	}
	return nil
}

// AppVolumes are the volumes of one app, as a client reaches them.
type AppVolumes struct {
	Client *Client
	App    bourse.AppName
}

// Volumes returns a client for an app's volumes.
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
	return ask[Volume](ctx, v.Client, call{method: http.MethodPost, path: path("apps", string(v.App), "volumes"), header: header(HeaderOrderID, string(order)), in: in})
}

// List lists an app's volumes, oldest first, and the workers that did not
// answer: their volumes may be missing. Codes: not_found (the app).
func (v AppVolumes) List(ctx context.Context) ([]Volume, []bourse.WorkerID, error) {
	return list[[]Volume](ctx, v.Client, call{method: http.MethodGet, path: path("apps", string(v.App), "volumes")})
}

// Get finds a volume, with how full it is. Codes: not_found.
func (v AppVolumes) Get(ctx context.Context, id bourse.VolumeID) (Volume, error) {
	return ask[Volume](ctx, v.Client, call{method: http.MethodGet, path: v.path(id)})
}

// Update changes how a volume is kept. Codes: invalid, not_found.
func (v AppVolumes) Update(ctx context.Context, id bourse.VolumeID, in UpdateVolume) (Volume, error) {
	return ask[Volume](ctx, v.Client, call{method: http.MethodPut, path: v.path(id), in: in})
}

// Extend makes a volume larger, also while a machine uses it, and waits
// until it is. Codes: invalid (it would shrink), not_found,
// failed_precondition, insufficient_capacity (its worker is full).
func (v AppVolumes) Extend(ctx context.Context, id bourse.VolumeID, sizeGB int64) (Volume, error) {
	out, err := ask[Extended](ctx, v.Client, call{method: http.MethodPut, path: v.path(id, "extend"), in: ExtendVolume{SizeGB: sizeGB}})
	return out.Volume, err
}

// Destroy removes a volume for good; its snapshots stay until their
// retention is over. Codes: not_found, failed_precondition (a machine has it).
func (v AppVolumes) Destroy(ctx context.Context, id bourse.VolumeID) (Volume, error) {
	return ask[Volume](ctx, v.Client, call{method: http.MethodDelete, path: v.path(id)})
}

// Snapshots lists a volume's snapshots, also of one that is gone, newest first.
// Codes: not_found.
func (v AppVolumes) Snapshots(ctx context.Context, id bourse.VolumeID) ([]Snapshot, error) {
	return ask[[]Snapshot](ctx, v.Client, call{method: http.MethodGet, path: v.path(id, "snapshots")})
}

// Snapshot takes a snapshot of a volume and waits until it is taken.
// Codes: not_found, failed_precondition (one is being taken),
// insufficient_capacity.
func (v AppVolumes) Snapshot(ctx context.Context, id bourse.VolumeID) (Snapshot, error) {
	return ask[Snapshot](ctx, v.Client, call{method: http.MethodPost, path: v.path(id, "snapshots")})
}

// Org is what an organization has, as a client reaches it.
type Org struct {
	Client *Client
	Slug   string
}

// Org returns a client for an organization's objects.
func (c *Client) Org(slug string) Org { return Org{c, slug} }

// ListOrgMachines selects a page of an organization's machines.
type ListOrgMachines struct {
	Deleted bool // also destroyed ones, while they are remembered
	Region  bourse.Region
	States  []bourse.State
	Cursor  string // the NextCursor of the page before
	Limit   int    // machines of a page, up to 1000; 0: 1000
}

func (l *ListOrgMachines) query() url.Values {
	q := ListMachines{Deleted: l.Deleted, Region: l.Region, States: l.States}.query()
	if l.Cursor != "" {
		q.Set("cursor", l.Cursor)
	}
	q.Set("limit", strconv.Itoa(l.Limit)) // 0 is the API's default, too
	return q
}

// Machines returns a page of the organization's machines, those that were changed last at
// the end, and the workers that did not answer: their machines may be missing. A machine
// that changes while a client reads page after page comes again, and none is missed.
// Codes: invalid, forbidden.
func (o Org) Machines(ctx context.Context, want ListOrgMachines) (OrgMachines, []bourse.WorkerID, error) {
	return list[OrgMachines](ctx, o.Client, call{method: http.MethodGet, path: path("orgs", o.Slug, "machines"), query: want.query()})
}

// Volumes lists the volumes of all apps of the organization, and the workers that did not
// answer: their volumes may be missing. Codes: forbidden.
func (o Org) Volumes(ctx context.Context) ([]Volume, []bourse.WorkerID, error) {
	out, silent, err := list[OrgVolumes](ctx, o.Client, call{method: http.MethodGet, path: path("orgs", o.Slug, "volumes")})
	return out.Volumes, silent, err
}

// Placements says where machines of a size would find room, in order of preference, and
// takes nothing: the answer is as good as the moment. A region without room is not in it.
// Codes: invalid, forbidden.
func (o Org) Placements(ctx context.Context, in PlacementRequest) ([]RegionPlacement, error) {
	in.Org = o.Slug
	out, err := ask[PlacementList](ctx, o.Client, call{method: http.MethodPost, path: path("platform", "placements"), in: in, reads: true})
	return out.Regions, err
}
