package machinesapi

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/bourse-dev/bourse"
)

// Org is what an organization has, as a client reaches it.
type Org struct {
	Client *Client
	Slug   string
}

// Org returns the client's way to what an organization has.
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
	var out OrgMachines
	reply, err := o.Client.do(ctx, call{method: http.MethodGet, path: path("orgs", o.Slug, "machines"), query: want.query(), out: &out})
	if err != nil {
		return OrgMachines{}, nil, err
	}
	return out, silentOf(reply), nil
}

// Volumes lists the volumes of all apps of the organization, and the workers that did not
// answer: their volumes may be missing. Codes: forbidden.
func (o Org) Volumes(ctx context.Context) ([]Volume, []bourse.WorkerID, error) {
	var out OrgVolumes
	reply, err := o.Client.do(ctx, call{method: http.MethodGet, path: path("orgs", o.Slug, "volumes"), out: &out})
	if err != nil {
		return nil, nil, err
	}
	return out.Volumes, silentOf(reply), nil
}

// Placements says where machines of a size would find room, in order of preference, and
// takes nothing: the answer is as good as the moment. A region without room is not in it.
// Codes: invalid, forbidden.
func (o Org) Placements(ctx context.Context, in PlacementRequest) ([]RegionPlacement, error) {
	in.Org = o.Slug
	var out PlacementList
	_, err := o.Client.do(ctx, call{method: http.MethodPost, path: path("platform", "placements"), in: in, out: &out, reads: true})
	return out.Regions, err
}
