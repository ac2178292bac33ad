package flycompat

import (
	"context"
	"net/http"
	"slices"
	"strconv"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

// organization is an organization in the REST API.
type organization struct {
	ID            string `json:"id"`
	NumericID     int64  `json:"internal_numeric_id"`
	Slug          string `json:"slug"`
	RawSlug       string `json:"raw_slug"`
	Name          string `json:"name"`
	PaidPlan      bool   `json:"paid_plan"`
	Personal      bool   `json:"personal"`
	BillingStatus string `json:"billing_status"`
	Billable      bool   `json:"billable"`
	BuilderImage  string `json:"remote_builder_image"`
}

// myOrganizations returns the organizations of all apps that the caller may use, plus the organization in which the
// caller may create apps, which is the default organization if the token is valid for all organizations.
func (c *caller) myOrganizations(ctx context.Context) ([]machinesapi.Organization, error) {
	token, err := c.token(ctx)
	if err != nil {
		return nil, err
	}
	all, err := c.Apps(ctx, "")
	if err != nil {
		return nil, err
	}
	var out []machinesapi.Organization
	for i := range all {
		if !slices.Contains(out, all[i].Organization) {
			out = append(out, all[i].Organization)
		}
	}
	if token.Org == machinesapi.AllOrgs {
		token.Org = bourse.DefaultOrg
	}
	own := machinesapi.FromApp(bourse.App{Org: token.Org}, 0, 0).Organization
	if len(token.Apps) == 0 && !slices.Contains(out, own) {
		out = append(out, own)
	}
	slices.SortFunc(out, func(x, y machinesapi.Organization) int { return compareOrgs(x.Slug, y.Slug) })
	return out, nil
}

// token returns the restrictions of the caller's token.
func (c *caller) token(ctx context.Context) (machinesapi.CurrentToken, error) {
	list, err := c.Client.Tokens().Current(ctx)
	if err == nil && len(list) == 0 {
		err = bourse.Errorf(bourse.CodeUnauthorized, "the token has no permissions")
	}
	if err != nil {
		return machinesapi.CurrentToken{}, err
	}
	return list[0], nil
}

// compareOrgs sorts the default organization first, and the others by name.
func compareOrgs(x, y string) int {
	switch {
	case x == y:
		return 0
	case x == bourse.DefaultOrg || y != bourse.DefaultOrg && x < y:
		return -1
	}
	return 1
}

// organizationOf returns the caller's organization with the given slug. Errors: not_found.
func (c *caller) organizationOf(ctx context.Context, slug string) (machinesapi.Organization, error) {
	all, err := c.myOrganizations(ctx)
	if err != nil {
		return machinesapi.Organization{}, err
	}
	for _, o := range all {
		if o.Slug == slug {
			return o, nil
		}
	}
	return machinesapi.Organization{}, bourse.Errorf(bourse.CodeNotFound, "Could not find Organization %s", bourse.Quoted(slug))
}

// organizations resolves the organizations that the caller may use.
func (c *caller) organizations(ctx context.Context, _ arguments) (any, error) {
	all, err := c.myOrganizations(ctx)
	return nodes(shownOrganizations(all)), err
}

func (c *caller) organization(ctx context.Context, args arguments) (any, error) {
	slug := args.text("slug")
	if slug == "" {
		slug = args.text("id")
	}
	o, err := c.organizationOf(ctx, slug)
	if err != nil {
		return nil, err
	}
	return shownOrganization(o), nil
}

func (c *caller) personalOrganization(ctx context.Context, _ arguments) (any, error) {
	all, err := c.myOrganizations(ctx)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	return shownOrganization(all[0]), nil
}

func shownOrganizations(all []machinesapi.Organization) []object {
	out := make([]object, len(all))
	for i, o := range all {
		out[i] = shownOrganization(o)
	}
	return out
}

func shownOrganization(o machinesapi.Organization) object {
	kind := "SHARED"
	if o.Slug == bourse.DefaultOrg {
		kind = "PERSONAL"
	}
	return object{
		typename: "Organization", "id": o.Slug, "internalNumericId": strconv.Itoa(int(o.NumericID)), "slug": o.Slug, "rawSlug": o.Slug, "name": o.Name,
		"type": kind, "paidPlan": true, "billable": true, "viewerRole": "admin", "remoteBuilderImage": "", "addOns": none(), "members": none(),
		"wireGuardPeers": none(), "delegatedWireGuardTokens": none(), "limitedAccessTokens": none(),
	}
}

func restOrganization(o machinesapi.Organization) organization {
	return organization{
		ID: o.Slug, NumericID: int64(o.NumericID), Slug: o.Slug, RawSlug: o.Slug, Name: o.Name,
		PaidPlan: true, Personal: o.Slug == bourse.DefaultOrg, BillingStatus: "CURRENT", Billable: true,
	}
}

// listOrganizations serves GET /api/v1/organizations.
func listOrganizations(c *caller, w http.ResponseWriter, r *http.Request) error {
	all, err := c.myOrganizations(r.Context())
	if err != nil {
		return err
	}
	out := make([]organization, len(all))
	for i, o := range all {
		out[i] = restOrganization(o)
	}
	return writeJSON(w, http.StatusOK, map[string]any{"organizations": out})
}

// getOrganization serves GET /api/v1/organizations/{org}.
func getOrganization(c *caller, w http.ResponseWriter, r *http.Request) error {
	o, err := c.organizationOf(r.Context(), r.PathValue("org"))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, map[string]any{"organization": restOrganization(o)})
}
